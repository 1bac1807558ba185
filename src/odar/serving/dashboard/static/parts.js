// Parts that several pages share: controls, whose questions are shown, marks of a trace, the empty state, a failure.

import { api } from "./api.js";
import { fill, fresh, h } from "./dom.js";

/** One of several choices, as radio buttons. */
export function segments(label, choices, chosen, changed) {
  const name = fresh("segment");
  return h("div", { class: "segments", role: "radiogroup", "aria-label": label }, choices.map(([value, text]) =>
    h("label", {}, h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => changed(value) }), h("span", {}, text))));
}

/** Ranges of time of the overview and of observations. */
export const RANGES = {
  "1h": { name: "1 h", ms: 3600e3, step: "minute" },
  "24h": { name: "24 h", ms: 86400e3, step: "hour" },
  "7d": { name: "7 d", ms: 7 * 86400e3, step: "hour" },
  "30d": { name: "30 d", ms: 30 * 86400e3, step: "day" },
  all: { name: "All", ms: null, step: "day" },
};

/** A card with a title. */
export const card = (width, title, side, ...content) =>
  h("section", { class: `card ${width}` }, h("header", {}, h("h2", {}, title), side), content);

/** A number with its name and a note. */
export const figure = (name, value, note) =>
  h("section", { class: "card figure w3" }, h("h2", {}, name), h("p", { class: "value" }, value), h("p", {}, note));

/** A labelled select. Choices are [value, text]. */
export function select(label, choices, chosen, changed) {
  const node = h("select", { "aria-label": label, onchange: () => changed?.(node.value) },
    choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return node;
}

/** Whose questions a page shows. */
export const scopeOf = (session) =>
  session.key === null ? `Profile ${session.profile}` : session.key.admin ? `Profile ${session.profile}, every key's questions` : `Profile ${session.profile}, questions of key ${session.key.name}`;

/** What became of a trace, where that is worth a word. */
export const marks = (row) => [
  row.status === "error" && h("span", { class: "chip bad" }, "Failed"),
  row.status === "cancelled" && h("span", { class: "chip" }, "Cancelled"),
  row.degraded && h("span", { class: "chip warn" }, "Degraded"),
  row.feedback && h("span", { class: `chip ${row.feedback.correct ? "good" : "bad"}` }, row.feedback.correct ? "Right" : "Wrong"),
];

/** What a page says when there is nothing to show, and what to do about it. */
export function noTraces(session, time) {
  if (!session.recording) {
    return h("div", { class: "card empty" }, h("h2", {}, "Nothing is recorded"),
      h("p", {}, "This server keeps no traces. Set store.enabled = true and start it again; the playground works without."));
  }
  return h("div", { class: "card empty" }, h("h2", {}, `No questions ${time}`),
    h("p", {}, "Ask something in the ", h("a", { href: "#/playground" }, "playground"), ", or point a client here:"),
    h("pre", {}, `curl ${location.origin}/v1/chat/completions -d '{\n  "model": "odar",\n  "messages": [{"role": "user", "content": "Is Paris the capital of France?"}]}'`));
}

/** Say what went wrong, and how to try again. A missing key is asked for elsewhere. */
export function failed(node, error) {
  if (error.status === 401) return;
  fill(node, h("div", { class: "problem", role: "alert" }, error.message), h("button", { type: "button", onclick: () => dispatchEvent(new Event("odar-again")) }, "Try again"));
}

/** Right or wrong; the last word counts. */
export function feedbackButtons(id, given) {
  const said = h("span", { role: "status" });
  const mark = (correct, text, tone) => h("button", { type: "button", class: tone, "aria-pressed": String(given?.correct === correct), onclick: () => send(correct) }, text);
  const right = mark(true, "Right", "good"), wrong = mark(false, "Wrong", "bad");
  async function send(correct) {
    right.disabled = wrong.disabled = true;
    try {
      await api.feedback(id, correct);
      right.setAttribute("aria-pressed", String(correct));
      wrong.setAttribute("aria-pressed", String(!correct));
      said.textContent = "Saved";
    } catch (error) {
      said.textContent = error.status === 404 ? "This question was not recorded, so it cannot be marked." : error.message;
    }
    right.disabled = wrong.disabled = false;
  }
  return h("div", { class: "rate", role: "group", "aria-label": "Was the answer right?" }, h("span", {}, "Was it right?"), right, wrong, said);
}
