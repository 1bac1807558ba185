// What each Node client does in the table; see programs.py. Copied into the client's folder and run there.
const URL_ = process.env.ODAR_URL, V1 = `${URL_}/v1`, KEY = "sk-none";
let MODEL = "";
const CHAT = "What is the capital of France?", FACT = "Paris";
const ASK_TOOL = "What is the weather in Paris?", RESULT = "21 degrees and sunny";
const ASK_JSON = "Name the capital of France as JSON.";
const SCHEMA = {
  type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false,
};

function check(condition, what = "") {
  if (!condition) throw new Error(`unexpected: ${JSON.stringify(what)?.slice(0, 200)}`);
}
const has = (text, wanted) => check(typeof text === "string" && text.includes(wanted), text);
function pieces(found) {
  check(found.filter(Boolean).length > 1, found);
  has(found.join(""), FACT);
}
async function all(stream) {
  const found = [];
  for await (const each of stream) found.push(each);
  return found;
}

async function openaiNode() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });
  const ask = (text, more = {}) =>
    client.chat.completions.create({ model: MODEL, messages: [{ role: "user", content: text }], ...more });
  const tool = { type: "function", function: { name: "get_weather", parameters: SCHEMA } };
  return {
    chat: async () => {
      has((await ask(CHAT)).choices[0].message.content, FACT);
      has((await client.responses.create({ model: MODEL, input: CHAT })).output_text, FACT);
    },
    stream: async () => pieces((await all(await ask(CHAT, { stream: true }))).map((c) => c.choices[0]?.delta.content)),
    tools: async () => {
      const runner = client.chat.completions.runTools({
        model: MODEL,
        messages: [{ role: "user", content: ASK_TOOL }],
        tools: [{ ...tool, function: { ...tool.function, function: () => RESULT, parse: JSON.parse } }],
      });
      has(await runner.finalContent(), `says: ${RESULT}`);
    },
    structured: async () => {
      const form = { type: "json_schema", json_schema: { name: "city", strict: true, schema: SCHEMA } };
      check(JSON.parse((await ask(ASK_JSON, { response_format: form })).choices[0].message.content).city === FACT);
    },
    usage: async () => check((await ask(CHAT)).usage.completion_tokens > 0),
  };
}

async function anthropicNode() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: URL_, apiKey: KEY, maxRetries: 0 });
  const ask = (messages, more = {}) =>
    client.messages.create({
      model: MODEL, max_tokens: 500, ...more,
      messages: typeof messages === "string" ? [{ role: "user", content: messages }] : messages,
    });
  return {
    chat: async () => has((await ask(CHAT)).content[0].text, FACT),
    stream: async () => {
      const stream = client.messages.stream({
        model: MODEL, max_tokens: 500, messages: [{ role: "user", content: CHAT }],
      });
      const found = [];
      stream.on("text", (text) => found.push(text));
      await stream.finalMessage();
      pieces(found);
    },
    tools: async () => {
      const tools = [{ name: "get_weather", input_schema: SCHEMA }];
      const turns = [{ role: "user", content: ASK_TOOL }];
      const first = await ask(turns, { tools });
      const use = first.content.find((block) => block.type === "tool_use");
      turns.push({ role: "assistant", content: first.content });
      turns.push({ role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: RESULT }] });
      has((await ask(turns, { tools })).content.at(-1).text, RESULT);
    },
    structured: async () => {
      const output_config = { format: { type: "json_schema", schema: SCHEMA } };
      check(JSON.parse((await ask(ASK_JSON, { output_config })).content[0].text).city === FACT);
    },
    usage: async () => check((await ask(CHAT)).usage.output_tokens > 0),
  };
}

async function vercelAi() {
  const ai = await import("ai");
  const { z } = await import("zod");
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const model = createOpenAICompatible({
    name: "odar", baseURL: V1, apiKey: KEY, supportsStructuredOutputs: true, includeUsage: true,
  })(MODEL);
  const ask = (prompt, more = {}) => ai.generateText({ model, prompt, maxRetries: 0, ...more });
  return {
    chat: async () => has((await ask(CHAT)).text, FACT),
    stream: async () => pieces(await all(ai.streamText({ model, prompt: CHAT, maxRetries: 0 }).textStream)),
    tools: async () => {
      const weather = ai.tool({
        description: "The weather in a city.", inputSchema: z.object({ city: z.string() }), execute: async () => RESULT,
      });
      const done = await ask(ASK_TOOL, { tools: { get_weather: weather }, stopWhen: ai.stepCountIs(3) });
      has(done.text, RESULT);
    },
    structured: async () => {
      const output = ai.Output.object({ schema: z.object({ city: z.string() }) });
      const done = await ask(ASK_JSON, { output });
      check((done.output ?? done.experimental_output).city === FACT);
    },
    usage: async () => {
      check((await ask(CHAT)).usage.outputTokens > 0);
      const streamed = ai.streamText({ model, prompt: CHAT, maxRetries: 0 });
      await all(streamed.textStream);
      check((await streamed.usage).outputTokens > 0);
    },
  };
}

const PROGRAMS = { "openai-node": openaiNode, "anthropic-node": anthropicNode, "vercel-ai": vercelAi };

for (MODEL of process.argv.slice(3)) {
  for (const [feature, program] of Object.entries(await PROGRAMS[process.argv[2]]())) {
    let result = "ok";
    try {
      await program();
    } catch (error) {
      result = `${error?.name}: ${error?.message}`.slice(0, 400);
    }
    console.log(JSON.stringify({ feature, model: MODEL, result }));
  }
}
