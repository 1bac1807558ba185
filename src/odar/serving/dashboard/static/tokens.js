// A candidate's tokens, each shaded by its surprisal; where the texts were not kept, one block a token.

import { fill, h, visible } from "./dom.js";
import { count, fixed, num } from "./format.js";

const LN2 = Math.log(2);
const STEPS = [0.1, 0.5, 1, 2, 4];
const FIRST = 1200;

/** Which of six shades: 0 for what was expected, 5 for what nobody would have bet on. */
export const shade = (bits) => STEPS.filter((limit) => bits >= limit).length;

export const surprisal = (logprob) => -num(logprob) / LN2;

export function legend() {
  const named = ["under 0.1", "0.1", "0.5", "1", "2", "4 bits and more"];
  return h("div", { class: "legend", "aria-label": "Legend of the tokens" },
    h("span", { class: "ramp" }, "surprisal", named.map((text, i) => h("i", { class: `key-s${i}`, title: text })), "0 to 4 bits and more"),
    h("span", {}, h("span", { class: "t scaffold" }, "Answer:"), "format, not in V"),
    h("span", {}, h("span", { class: "t control" }, "end"), "control, in neither E nor V"),
    h("span", {}, h("span", { class: "t blind" }, "word"), "no log-probability"));
}

/** The tokens, a line that says what is under the pointer, and a way to move through them by keyboard. */
export function tokenView(candidate, name) {
  const { logprobs, tokens } = candidate;
  if (!logprobs?.length) return null;
  const kept = tokens !== undefined;
  const control = new Set(candidate.control), scaffold = new Set(candidate.scaffold ?? []);
  const box = h("div", { class: kept ? "tokens" : "tokens blocks", dir: kept ? "auto" : null, tabindex: "0", role: "group", "aria-label": `${name}: ${count(logprobs.length)} tokens; arrow keys move from one to the next` });
  const readout = h("p", { class: "readout", role: "status" });
  const more = h("button", { type: "button", class: "quiet more", onclick: () => grow(shown * 4) });
  let shown = 0, at = -1;

  function grow(to) {
    const end = Math.min(to, logprobs.length);
    const part = document.createDocumentFragment();
    for (let i = shown; i < end; i++) part.append(token(i));
    box.append(part);
    shown = end;
    more.hidden = shown >= logprobs.length;
    more.textContent = `Show more of ${count(logprobs.length)} tokens`;
  }
  function token(i) {
    const bits = logprobs[i] === null ? null : surprisal(logprobs[i]);
    const kind = [bits === null ? "blind" : `s${shade(bits)}`, control.has(i) && "control", scaffold.has(i) && "scaffold"];
    return h("span", { class: `t ${kind.filter(Boolean).join(" ")}`, "data-i": i }, kept ? written(tokens[i], control.has(i)) : null);
  }
  function point(i, move) {
    box.querySelector(".at")?.classList.remove("at");
    at = i;
    const node = box.children[i];
    if (!node) return void idle();
    node.classList.add("at");
    if (move) node.scrollIntoView({ block: "nearest" });
    fill(readout, describe(i));
  }
  function describe(i) {
    const what = kept ? h("b", {}, JSON.stringify(visible(tokens[i])).slice(0, 200)) : `token ${count(i + 1)}`;
    const kind = control.has(i) ? "control" : scaffold.has(i) ? "format" : null;
    if (logprobs[i] === null) return [what, ", log-probability not reported", kind && `, ${kind}`];
    return [what, ` log-prob ${fixed(logprobs[i], 4)}, probability ${chance(Math.exp(num(logprobs[i])))}, surprisal ${fixed(surprisal(logprobs[i]))} bits`, kind && `, ${kind}`];
  }
  function idle() {
    const known = logprobs.map(num).filter((lp, i) => lp !== null && !control.has(i));
    const mean = known.reduce((a, b) => a + b, 0) / known.length;
    readout.textContent = known.length ? `${count(logprobs.length)} tokens, mean log-prob ${fixed(mean, 3)}. Point at one, or use the arrow keys.` : `${count(logprobs.length)} tokens, none with a log-probability.`;
  }
  box.addEventListener("mouseover", (event) => { const hit = event.target.closest("[data-i]"); if (hit) point(Number(hit.dataset.i)); });
  box.addEventListener("mouseleave", () => { if (document.activeElement !== box) point(-1); });
  box.addEventListener("focus", () => { if (at < 0) point(0, true); });
  box.addEventListener("blur", () => point(-1));
  box.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowDown: at + 10, ArrowLeft: at - 1, ArrowUp: at - 10, Home: 0, End: shown - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    point(Math.min(Math.max(to, 0), shown - 1), true);
  });
  grow(FIRST);
  idle();
  return h("div", {}, box, more, readout);
}

const chance = (p) => (p > 0.0005 ? `${(p * 100).toFixed(p > 0.9995 ? 2 : 1)}%` : p.toExponential(1));

/** A token's text; line ends are marked, and a control token without text still shows. */
function written(text, isControl) {
  if (isControl) return text || "end";
  const parts = text.split("\n");
  return parts.flatMap((part, i) => (i ? [h("span", { class: "newline", "aria-hidden": "true" }, "↵"), "\n", part] : [part]));
}
