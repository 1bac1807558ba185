// The candidates: their energies in one table with the verdict, then side by side with every token.

import { h, longText } from "./dom.js";
import { DASH, fixed, num, percent, plural, signed } from "./format.js";
import { card } from "./parts.js";
import { legend, tokenView } from "./tokens.js";

const CLIPPED = 160;

/** Who was asked: the agent, and whether it checked another's answer. */
export const agentName = ({ agent, step }) => (step === "verify" ? `${agent}, verify` : agent);

/** Letters for groups of equal answers, A for the first candidate's. */
export function letters(groups) {
  const seen = [...new Set(groups)];
  return groups.map((group) => String.fromCharCode(65 + (seen.indexOf(group) % 26)));
}

export function verdictCard(document) {
  const { candidates, verdict } = document;
  const named = letters(document.groups);
  const many = candidates.length > 1;
  return card("", "Verdict", verdict && h("p", {}, `decided by ${verdict.rule}: ${verdict.reason}`),
    h("div", { class: "scroll" }, h("table", { class: "energies" },
      h("thead", {}, h("tr", {}, ["#", "Agent", "Answer"].map((name) => h("th", {}, name)), [["E", "Energy per character", "r wide"], ["V", "Varentropy", "r wide"], ["F", "E + λV: how uncertain the model was", "r wide"], ["F̃", "F, comparable between models", "r"], ["Weight", "Weight of its answer", "r"]].map(([name, title, side]) => h("th", { class: side }, h("abbr", { title }, name))))),
      h("tbody", {}, candidates.map((candidate, i) => row(candidate, i, verdict, named[i]))))),
    h("p", { class: "note" }, "F is how uncertain the model was of its own words (energy per character E, and how unevenly it is spread, V); F̃ makes it comparable between models. Lower is surer.",
      candidates.some((c) => c.energy && c.energy.aligned === null) ? " A model without F̃ is not calibrated for these prompts and settings (odar calibrate)." : "",
      many ? ` ${plural(new Set(named).size, "distinct answer")}; equal answers share a letter and one weight.` : ""));
}

function row(candidate, i, verdict, letter) {
  const energy = candidate.energy ?? {};
  const weight = verdict?.weights?.length ? num(verdict.weights[i]) : null;
  const won = verdict?.winner === i;
  return h("tr", { class: won ? "won" : null },
    h("td", {}, String(i + 1)), h("td", { class: "nowrap" }, agentName(candidate), won && h("span", { class: "hidden" }, ", chosen")),
    h("td", { class: "said", dir: "auto" }, letter && h("span", { class: "letter" }, letter), " ", candidate.final === undefined ? h("span", { class: "dim" }, plural(candidate.final_characters, "character")) : candidate.final.slice(0, CLIPPED)),
    h("td", { class: "r wide" }, fixed(energy.energy, 4)), h("td", { class: "r wide" }, fixed(energy.varentropy, 3)), h("td", { class: "r wide" }, fixed(energy.free_energy, 4)),
    h("td", { class: "r lead" }, energy.aligned === null || energy.aligned === undefined ? DASH : signed(energy.aligned)),
    h("td", { class: "r" }, weight === null ? DASH : h("span", { class: "share" }, h("span", { class: "track" }, h("i", { style: { width: percent(weight, 1) } })), percent(weight))));
}

export function candidatesCard(document) {
  const { candidates, verdict } = document;
  const named = letters(document.groups);
  const scored = candidates.some((candidate) => candidate.logprobs?.length);
  return card("", plural(candidates.length, "candidate"), scored && legend(),
    h("div", { class: "candidates" }, candidates.map((candidate, i) => one(candidate, i, verdict?.winner === i, candidates.length > 1 ? named[i] : null))));
}

function one(candidate, i, won, letter) {
  const name = `${i + 1}. ${agentName(candidate)}`;
  const tokens = tokenView(candidate, name);
  return h("article", { class: won ? "candidate won" : "candidate", "aria-label": name },
    h("header", {}, h("h3", {}, name), letter && h("span", { class: "letter" }, letter), won && h("span", { class: "chip good" }, "Chosen"),
      candidate.judgment !== null && h("span", { class: `chip ${candidate.judgment ? "good" : "bad"}` }, candidate.judgment ? "says correct" : "says incorrect"),
      candidate.finish !== "stop" && h("span", { class: "chip warn" }, `ended by ${candidate.finish}`)),
    h("p", { class: "by" }, candidate.model),
    tokens ?? (candidate.text === undefined
      ? h("p", { class: "dim" }, `${plural(candidate.text_characters, "character")}, not kept; the model gave no log-probabilities.`)
      : h("div", {}, longText(candidate.text, "tokens"), h("p", { class: "readout" }, "The model gave no log-probabilities."))));
}
