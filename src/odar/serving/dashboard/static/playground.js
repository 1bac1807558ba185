// Playground: ask, and see the whole trace of the answer, whether or not the store keeps its texts.

import { api } from "./api.js";
import { fill, h } from "./dom.js";
import { segments } from "./parts.js";
import { traceView } from "./trace.js";

const draft = { question: "", dial: "", path: "", cost: "" };

export async function playgroundPage(main, { session, alive }) {
  const out = h("div", { class: "result", "aria-live": "polite" });
  const question = h("textarea", { rows: "3", id: "question", "aria-label": "Question", placeholder: "Ask something. ODAR asks another model while that is worth its price.", maxlength: "100000", oninput: () => { draft.question = question.value; } });
  question.value = draft.question;
  const cost = h("input", { type: "number", min: "0", step: "any", value: draft.cost, placeholder: "no limit", "aria-label": "Most it may cost, in US dollars", oninput: () => { draft.cost = cost.value; } });
  const go = h("button", { type: "submit", class: "primary" }, "Ask");
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const clock = h("span", { role: "timer" });
  let running = null;

  async function ask(event) {
    event.preventDefault();
    if (!question.value.trim()) return void question.focus();
    running?.abort();
    const mine = (running = new AbortController());
    const started = performance.now();
    const timer = setInterval(() => { clock.textContent = `${((performance.now() - started) / 1000).toFixed(1)} s`; }, 100);
    go.disabled = true;
    stop.hidden = false;
    fill(out);
    try {
      const limits = { path: draft.path || null, dial: draft.dial || null, max_cost_usd: cost.value === "" ? null : Number(cost.value) };
      const answer = await api.ask(question.value, limits, mine.signal);
      if (alive()) fill(out, traceView(answer, session));
    } catch (error) {
      if (alive()) fill(out, h("div", { class: error.name === "AbortError" ? "aside" : "problem", role: "alert" }, error.name === "AbortError" ? "Stopped. What was under way has been cancelled." : error.message));
    }
    clearInterval(timer);
    clock.textContent = "";
    go.disabled = false;
    stop.hidden = true;
  }

  const form = h("form", { class: "card ask", onsubmit: ask }, question,
    h("div", { class: "row" },
      h("div", { class: "field" }, h("span", {}, "Dial"), segments("Dial", [["", "As set"], ["economy", "Economy"], ["balanced", "Balanced"], ["quality", "Quality"]], draft.dial, (dial) => { draft.dial = dial; })),
      h("div", { class: "field" }, h("span", {}, "Path"), segments("Path", [["", "Any"], ["simple", "Simple"], ["medium", "Medium"], ["hard", "Hard"]], draft.path, (path) => { draft.path = path; })),
      h("label", { class: "field" }, "At most, US dollars", cost),
      h("div", { class: "go" }, clock, stop, go)));
  question.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
  fill(main, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Playground"),
    h("p", {}, session.content || !session.recording ? "Ctrl + Enter asks." : "Ctrl + Enter asks. The answer is shown here in full; the store keeps its figures only."))), form, out);
  if (innerWidth > 720) question.focus({ preventScroll: true });
  return { leave: () => running?.abort(), search: () => question.focus() };
}
