// Why this path: the difficulty on its scale, the features behind it, and who was given the work.

import { h } from "./dom.js";
import { fixed, num, pathName, percent, signed } from "./format.js";

const SHOWN = 8;

export function difficultyCard(document, session) {
  const { decision } = document;
  if (!decision) {
    return card("Why this path", h("p", { class: "dim" }, document.path === "direct" ? "The caller named the model: there was nothing to decide." : "The query failed before a path was chosen."));
  }
  const { estimate, assignment } = decision;
  return h("section", { class: "card" },
    h("header", {}, h("h2", {}, "Why this path"), h("p", {}, `${pathName(document.path)}: ${decision.reason}`)),
    scale(decision, document.path, session),
    h("dl", { class: "facts bare" },
      fact("Expert", `${assignment.expert}${assignment.cue ? ` (${assignment.cue})` : ""}`), fact("Fast model", assignment.fast || "–"), fact("Slow model", assignment.slow || "–"), fact("Estimator", estimate.estimator)),
    contributions(estimate));
}

const card = (title, ...content) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), content);
const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

/** The thresholds that decided, as the decision itself tells them; those of the server now where it does not. */
export function thresholdsOf(decision, session) {
  const said = (name) => { const found = new RegExp(`${name} = ([0-9.]+)`).exec(decision.reason); return found ? Number(found[1]) : null; };
  const tau1 = said("τ1"), tau2 = said("τ2");
  return { tau1: tau1 ?? session.routing.tau1, tau2: tau2 ?? session.routing.tau2, now: tau1 === null || tau2 === null };
}

function scale(decision, path, session) {
  const { tau1, tau2, now } = thresholdsOf(decision, session);
  const prior = num(decision.estimate.difficulty), posterior = num(decision.posterior);
  const zone = (name, width) => h("i", { class: `${name} ${name === path ? "on" : ""}`, style: { flex: String(width) } });
  const mark = (name, value, kind) => h("div", { class: `mark ${kind} ${value < 0.12 ? "low" : value > 0.88 ? "high" : ""}`, style: { left: percent(value, 2) } }, h("span", {}, `${name} ${fixed(value, 3)}`));
  const tick = (value, text, kind = "") => h("span", { class: `tick ${kind}`, style: { left: percent(value, 2) } }, text);
  const said = posterior === null ? `Difficulty ${fixed(prior, 3)}` : `Prior difficulty ${fixed(prior, 3)}, posterior ${fixed(posterior, 3)}`;
  return h("div", {},
    h("div", { class: `scale ${posterior === null ? "" : "two"}`, role: "img", "aria-label": `${said}; τ1 ${fixed(tau1)}, τ2 ${fixed(tau2)}` },
      h("div", { class: "zones" }, zone("simple", tau1), zone("medium", tau2 - tau1), zone("hard", 1 - tau2)),
      posterior === null ? mark("d", prior, "") : [mark("prior", prior, "prior below"), mark("posterior", posterior, "")],
      tick(0, "0", "first"), tau1 > 0.04 && tau1 < 0.96 && tick(tau1, `τ1 ${fixed(tau1)}`), tau2 > tau1 + 0.1 && tau2 < 0.96 && tick(tau2, `τ2 ${fixed(tau2)}`), tick(1, "1", "last")),
    now && h("p", { class: "hidden" }, "Where the decision does not name a threshold, the server's present one is shown."));
}

/** W·φ of each feature as a diverging bar, the strongest first; what is left of the logit is the bias. */
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
