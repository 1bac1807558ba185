// Overview: what was asked, which paths it took, what it cost, and what other choices would have.

import { api } from "./api.js";
import { bars, mix, pathLegend, series } from "./charts.js";
import { fill, h } from "./dom.js";
import { count, fixed, money, pathName, percent, plural, seconds } from "./format.js";
import { failed, noTraces, scopeOf, segments } from "./parts.js";
import { meanCost, thresholds } from "./thresholds.js";

const RANGES = {
  "1h": { name: "1 h", ms: 3600e3, step: "minute" },
  "24h": { name: "24 h", ms: 86400e3, step: "hour" },
  "7d": { name: "7 d", ms: 7 * 86400e3, step: "hour" },
  "30d": { name: "30 d", ms: 30 * 86400e3, step: "day" },
  all: { name: "All", ms: null, step: "day" },
};
const ORDER = ["simple", "medium", "hard", "direct", "none"];

export async function overviewPage(main, { query, session, go, alive }) {
  const chosen = RANGES[query.range] ? query.range : "24h";
  const range = RANGES[chosen];
  const body = h("div", {});
  const picker = segments("Time range", Object.entries(RANGES).map(([id, r]) => [id, r.name]), chosen, (id) => go("/", { range: id }));
  fill(main, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Overview"), h("p", {}, scopeOf(session))), h("div", { class: "side" }, picker)), body);
  const since = range.ms === null ? null : Date.now() - range.ms;
  let view;
  try {
    view = await api.overview({ since: since && new Date(since).toISOString(), step: range.step });
  } catch (error) {
    if (alive()) failed(body, error);
    return;
  }
  if (!alive()) return;
  if (!view.queries) return void fill(body, noTraces(session, range.ms === null ? "yet" : `in the last ${range.name}`));
  const paths = ORDER.filter((p) => view.paths[p]);
  fill(body, h("div", { class: "stack" },
    figures(view, session),
    h("div", { class: "grid" },
      card("w7", "Queries over time", pathLegend(paths), series(view.timeline, range.step, since, paths)),
      card("w5", "Paths", null, pathTable(view, paths))),
    card("", "Where the thresholds lie", h("p", {}, "d(x), the difficulty that chose the path"), thresholds(view, session.routing)),
    h("div", { class: "grid" },
      card("w6", "Money", h("p", {}, "against spending the same on everything"), spending(view)),
      card("w6", "Latency", h("p", {}, "median, and the 95th percentile in pale"), latency(view, paths)))));
}

const card = (width, title, side, ...content) =>
  h("section", { class: `card ${width}` }, h("header", {}, h("h2", {}, title), side), content);

const figure = (name, value, note) =>
  h("section", { class: "card figure w3" }, h("h2", {}, name), h("p", { class: "value" }, value), h("p", {}, note));

function figures(view, session) {
  const known = view.queries - view.cost_unknown;
  const marked = view.feedback.right + view.feedback.wrong;
  const hard = 1 + session.routing.samples;
  const trouble = [view.errors && plural(view.errors, "error"), view.degraded && `${count(view.degraded)} degraded`].filter(Boolean).join(", ");
  const alternatives = counterfactuals(view);
  const saved = alternatives.hard && alternatives.actual !== null ? 1 - alternatives.actual / alternatives.hard : null;
  return h("div", { class: "grid figures" },
    figure("Queries", count(view.queries), trouble || "no errors"),
    figure("Calls per query", fixed(view.calls_per_query), `${percent(view.calls_per_query / hard)} of the ${hard} of always Hard`),
    figure("Spent", known ? money(view.cost_usd) : money(null),
      view.cost_unknown ? `${plural(view.cost_unknown, "query", "queries")} of unknown cost not in it` : saved === null ? `${money(view.cost_usd / known)} per query` : `${percent(Math.abs(saved))} ${saved < 0 ? "more" : "less"} than always Hard`),
    marked
      ? figure("Right, by feedback", percent(view.feedback.right / marked), `${count(view.feedback.right)} of ${count(marked)} marked, 95% interval ${interval(view.feedback.right, marked)}`)
      : figure("Right, by feedback", "–", "no answer has been marked"));
}

/** Wilson's interval of a share. */
function interval(right, n) {
  const z = 1.96, p = right / n;
  const middle = (p + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n))) / (1 + (z * z) / n);
  return `${percent(Math.max(0, middle - half))} to ${percent(Math.min(1, middle + half))}`;
}

function pathTable(view, paths) {
  const accuracy = ({ right, wrong }) => (right + wrong ? `${percent(right / (right + wrong))} of ${count(right + wrong)}` : "–");
  return h("div", {},
    mix(Object.fromEntries(paths.map((p) => [p, view.paths[p].queries])), "Path mix"),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Path"), h("th", { class: "r" }, "Share"), h("th", { class: "r wide" }, "Queries"), h("th", { class: "r" }, "Calls"), h("th", { class: "r" }, "Mean cost"), h("th", { class: "r" }, "Right"))),
      h("tbody", {}, paths.map((p) => {
        const path = view.paths[p];
        const cost = meanCost(path);
        return h("tr", {},
          h("td", {}, h("a", { href: p === "none" ? "#/traces?status=error" : `#/traces?path=${p}`, class: `chip ${p}` }, pathName(p))),
          h("td", { class: "r" }, percent(path.queries / view.queries, 1)), h("td", { class: "r wide" }, count(path.queries)),
          h("td", { class: "r" }, fixed(path.calls_per_query)), h("td", { class: "r" }, cost === null ? money(null) : money(cost)),
          h("td", { class: "r" }, accuracy(path.feedback)));
      })))));
}

/** What the queries of known cost would have cost: each one Hard, or each one a single answer of the slow agent. */
export function counterfactuals(view) {
  const known = view.queries - view.cost_unknown;
  const hard = meanCost(view.paths.hard);
  const slow = view.slow.calls ? view.slow.cost_usd / view.slow.calls : null;
  return { known, actual: known ? view.cost_usd : null, hard: hard === null ? null : hard * known, slow: slow === null ? null : slow * known };
}

function spending(view) {
  const { known, actual, hard, slow } = counterfactuals(view);
  const top = Math.max(actual ?? 0, hard ?? 0, slow ?? 0) || 1;
  const row = (name, value, className, why) => ({ name: h("strong", {}, name), value: value === null ? h("span", { class: "dim", title: why }, money(null)) : money(value), share: (value ?? 0) / top, className });
  return h("div", {},
    bars([
      row("As it was", actual, "medium", "no query has a known cost"),
      row("Always slow", slow, "direct", "no slow answer of known cost was recorded"),
      row("Always Hard", hard, "hard", "no Hard query of known cost was recorded"),
    ]),
    h("p", { class: "note" },
      `Over the ${plural(known, "query", "queries")} of known cost. Always slow is the mean cost of a recorded slow answer${view.slow.calls ? ` (${plural(view.slow.calls, "answer")})` : ""}, always Hard that of a recorded Hard query${view.paths.hard ? ` (${count(view.paths.hard.queries - view.paths.hard.cost_unknown)})` : ""}, times the number of queries. `,
      view.cost_unknown ? h("strong", {}, `${plural(view.cost_unknown, "query has", "queries have")} an unknown cost`) : "Every cost is known",
      view.slow.cost_unknown ? `, and so ${view.slow.cost_unknown === 1 ? "has 1 slow answer" : `have ${count(view.slow.cost_unknown)} slow answers`}.` : "."));
}

function latency(view, paths) {
  const shown = paths.filter((p) => view.paths[p].latency_s.p95 !== null);
  const top = Math.max(...shown.map((p) => view.paths[p].latency_s.p95)) || 1;
  return bars(shown.map((p) => {
    const { p50, p95 } = view.paths[p].latency_s;
    return { name: pathName(p), className: p, share: p50 / top, second: p95 / top, value: [h("strong", {}, seconds(p50)), h("span", { class: "dim" }, `  ${seconds(p95)}`)] };
  }));
}
