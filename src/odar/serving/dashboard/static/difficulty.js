// The difficulty, and what each feature adds to it.

import { h } from "./dom.js";
import { fixed, num, percent, signed } from "./format.js";

const SHOWN = 8;

export function difficultyCard({ estimate, assignment, kind, policy, dial }) {
  return h("section", { class: "card" },
    h("header", {}, h("h2", {}, "The question"), h("p", {}, `d(x) = ${fixed(estimate.difficulty, 3)}`)),
    h("dl", { class: "facts bare" },
      fact("Expert", `${assignment.expert}${assignment.cue ? ` (${assignment.cue})` : ""}`), fact("Kind of answer", kind), fact("Policy", policy), dial && fact("Dial", dial), fact("Estimator", estimate.estimator)),
    contributions(estimate));
}

const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

function contributions(estimate) {
  const rows = estimate.contributions.map(([name, value, share]) => ({ name, value: num(value), share: num(share) })).sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
  if (!rows.length) return h("p", { class: "note" }, `The estimator ${estimate.estimator} does not say what each feature adds.`);
  const top = Math.max(...rows.map((row) => Math.abs(row.share))) || 1;
  const d = num(estimate.difficulty);
  const sum = rows.reduce((total, row) => total + row.share, 0);
  const bias = d > 0 && d < 1 ? Math.log(d / (1 - d)) - sum : null;
  const grid = h("div", { class: "contributions", role: "list", "aria-label": "Contribution of each feature" });
  const line = (row) => {
    const width = percent(Math.abs(row.share) / top / 2, 2);
    return h("div", { class: "row", role: "listitem", "aria-label": `${row.name} ${number(row.value)}: ${signed(row.share, 3)}` },
      h("span", {}, row.name), h("span", { class: "v" }, number(row.value)),
      h("span", { class: "axis2" }, h("i", { class: row.share >= 0 ? "up" : "down", style: { width } })), h("span", { class: "w" }, signed(row.share, 3)));
  };
  grid.append(...rows.slice(0, SHOWN).map(line));
  const more = h("button", { type: "button", class: "quiet more", onclick: () => { grid.append(...rows.slice(SHOWN).map(line)); more.remove(); } }, `Show all ${rows.length} features`);
  return h("div", { class: "features" },
    h("h3", {}, "What each feature adds (W·φ)"), grid, rows.length > SHOWN && more,
    bias !== null && h("p", { class: "note" }, `Sum ${signed(sum, 3)}, bias ${signed(bias, 3)}: logit ${signed(sum + bias, 3)}, so d = σ(${signed(sum + bias, 3)}) = ${fixed(d, 3)}.`));
}

const number = (value) => (Number.isInteger(value) ? String(value) : fixed(value, Math.abs(value) < 10 ? 2 : 1));
