// One trace, from the store or straight from the playground: the same view for both.

import { api } from "./api.js";
import { pathChip } from "./charts.js";
import { fill, h, longText } from "./dom.js";
import { count, fixed, money, num, plural, seconds, UNKNOWN, when } from "./format.js";
import { agentName, candidatesCard, verdictCard } from "./candidates.js";
import { difficultyCard } from "./difficulty.js";
import { card, failed, feedbackButtons, marks } from "./parts.js";

export async function tracePage(main, { id, session, alive }) {
  const body = h("div", {});
  fill(main, h("p", { class: "crumb" }, h("a", { href: "#/traces" }, "Traces"), ` / ${id.slice(0, 8)}`), body);
  let row;
  try {
    row = await api.trace(id);
  } catch (error) {
    if (!alive()) return;
    if (error.status !== 404) return void failed(body, error);
    return void fill(body, h("div", { class: "card empty" }, h("h2", {}, "No such trace"),
      h("p", {}, session.retention_days ? `It may be older than ${session.retention_days} days, belong to another key, or never have been.` : "It may belong to another key, or never have been."),
      h("a", { href: "#/traces" }, "All traces")));
  }
  if (alive()) fill(body, traceView(row, session));
}

/** The view. `row` has id and document; a stored one also has feedback and key_id. */
export function traceView(row, session) {
  const document = row.document;
  return h("div", { class: "stack" },
    summary(row, document),
    !document.content && h("p", { class: "aside" }, "Stored without its texts (store.content = false): no question, answers or words, only lengths, log-probabilities and figures. New traces keep them with store.content = true."),
    row.story?.length > 0 && storyCard(row.story, document),
    document.plan ? difficultyCard(document.plan) : h("p", { class: "aside" }, document.path === "direct" ? "The caller named the model: there was nothing to decide." : "The question failed before a stage was chosen."),
    document.candidates.length > 0 && verdictCard(document),
    document.candidates.length > 0 && candidatesCard(document),
    document.calls.length > 0 && ledger(document),
    document.calls.length > 0 && timeline(document),
    origins(row, document));
}

function summary(row, document) {
  const { query, plan, spend, answer, baseline_usd: baseline } = document;
  const status = { status: document.status, degraded: document.degradations.length > 0, feedback: row.feedback };
  const facts = [
    ["Difficulty", plan ? fixed(plan.estimate.difficulty, 3) : "–"], ["Calls", count(spend.calls)], ["Cost", money(spend.cost_usd)], ["One slow call", money(baseline)], ["Time", seconds(spend.seconds)],
    ["Tokens in", count(spend.usage.input)], ["Tokens out", count(spend.usage.output)],
  ];
  return h("section", { class: "card" },
    query.text === undefined ? h("h1", { class: "question dim" }, `A question of ${plural(query.text_characters, "character")}`) : h("h1", { class: "question", dir: "auto" }, query.text.slice(0, 4000) || "(empty)", query.text.length > 4000 && "…"),
    query.images.length > 0 && images(query.images),
    h("div", { class: "chips" }, document.path ? pathChip(document.path) : h("span", { class: "chip none" }, "No path"),
      plan && h("span", { class: "chip plain" }, plan.assignment.expert), marks(status),
      h("span", { class: "dim nowrap" }, h("time", { datetime: document.started_at, title: document.started_at }, when(document.started_at)))),
    document.error && h("p", { class: "problem spaced" }, document.error),
    [...document.degradations, ...document.notes].map((reason) => h("p", { class: "aside spaced" }, reason)),
    h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    answer && h("div", { class: "said" }, h("h2", {}, "Answer"),
      answer.text === undefined ? h("p", { class: "answer dim" }, `${plural(answer.text_characters, "character")}, not kept`) : longText(answer.text, "answer prose"),
      feedbackButtons(document.id, row.feedback)));
}

/** What each stage was asked, what it answered, and why that was enough; the server tells it. */
function storyCard(story, { plan }) {
  const models = Object.entries(plan?.assignment.models ?? {}).map(([agent, model]) => `${agent} ${model}`).join(", ");
  return card("", "How the answer came about", h("p", {}, models),
    h("dl", { class: "story" }, story.map(([title, text]) => [h("dt", {}, title), h("dd", { dir: "auto" }, text)])),
    h("p", { class: "note" }, "Likely right: the probability that the leading answer is right. Gains are in points of accuracy."));
}

const PICTURES = /^image\/(png|jpeg|gif|webp)$/;

const images = (list) => h("div", { class: "thumbs" }, list.map((image) =>
  image.data && PICTURES.test(image.media_type)
    ? h("img", { src: `data:${image.media_type};base64,${image.data}`, alt: "An image of the question" })
    : h("span", { class: "chip plain" }, `${image.media_type || "image"}, ${count(image.bytes)} bytes`)));

function ledger(document) {
  const head = ["Agent", "Model", "Samples", "Input", "Cached", "Output", "Reasoning", "Cost", "Time", "Retries"];
  const cell = (value) => h("td", { class: "r" }, value === null ? h("span", { class: "dim" }, UNKNOWN) : value);
  const figure = (value) => cell(value === null ? null : count(value));
  const { usage } = document.spend;
  return card("", "Ledger", h("p", {}, "every request to a provider"),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, head.map((name, i) => h("th", { class: i > 1 ? "r" : null }, name)))),
      h("tbody", {}, document.calls.map((call) => [
        h("tr", {}, h("td", { class: "nowrap" }, agentName(call)), h("td", { class: "nowrap" }, call.model, h("span", { class: "dim" }, ` ${call.provider}`)), figure(call.samples),
          figure(call.usage.input), figure(call.usage.cached), figure(call.usage.output), figure(call.usage.reasoning),
          cell(call.cost_usd === null ? null : money(call.cost_usd)), cell(seconds(call.seconds)), figure(call.retries)),
        call.error && h("tr", {}, h("td", {}), h("td", { colspan: "9", class: "bad-text" }, call.error)),
      ])),
      h("tfoot", {}, h("tr", {}, h("td", {}, "Sum"), h("td", {}), figure(document.spend.calls), figure(usage.input), figure(usage.cached), figure(usage.output), figure(usage.reasoning), cell(document.spend.cost_usd === null ? null : money(document.spend.cost_usd)), cell(seconds(document.spend.seconds)), h("td", {}))))));
}

function timeline(document) {
  const total = Math.max(num(document.spend.seconds), ...document.calls.map((c) => (c.began_s ?? 0) + num(c.seconds))) || 1;
  return card("", "Timeline", h("p", {}, `${seconds(document.spend.seconds)} from question to answer`),
    h("div", { class: "timeline" }, document.calls.map((call) => {
      const begin = (call.began_s ?? 0) / total, length = num(call.seconds) / total;
      const kind = call.error ? "failed" : call.step === "answer" ? "fast" : "slow";
      const text = `${agentName(call)}: begins at ${seconds(call.began_s ?? 0)}, takes ${seconds(call.seconds)}`;
      return [h("span", { class: "nowrap" }, agentName(call), call.samples > 1 && h("span", { class: "dim" }, ` × ${call.samples}`)),
        h("span", { class: "lane", role: "img", "aria-label": text, title: text }, h("i", { class: kind, style: { left: `${begin * 100}%`, width: `${length * 100}%` } })),
        h("span", { class: "r dim nowrap" }, seconds(call.seconds))];
    })));
}

function origins(row, document) {
  const facts = [["Trace", document.id], ["Profile", document.profile], ...Object.entries(document.prompts).map(([step, md5]) => [`Prompt ${step}, MD5`, md5]),
    ...Object.entries(document.extra ?? {}).map(([name, value]) => [name[0].toUpperCase() + name.slice(1), String(value)]), ["Key", row.key_id ?? document.key_id]];
  return card("", "Origins", null, h("dl", { class: "facts bare ids" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, value)))));
}
