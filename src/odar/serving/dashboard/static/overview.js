// Overview: what was asked, which paths it took, what it cost, and what other choices would have.

import { api } from "./api.js";
import { bars, mix, pathLegend, series } from "./charts.js";
import { fill, h } from "./dom.js";
import { count, fixed, money, pathName, percent, plural, seconds } from "./format.js";
import { card, failed, figure, noTraces, RANGES, scopeOf, segments } from "./parts.js";

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
    view.warnings.map((text) => h("div", { class: "aside", role: "status" }, text)),
    figures(view, session),
    h("div", { class: "grid" },
      card("w7", "Questions over time", pathLegend(paths), series(view.timeline, range.step, since, paths)),
      card("w5", "Paths", null, pathTable(view, paths))),
    h("div", { class: "grid" },
      card("w6", "Stages", h("p", {}, "what was asked before ODAR stopped"), stages(view.stages)),
      card("w6", "Difficulty", h("p", {}, "how hard the questions looked, from 0 to 1, by path"), histogram(view.difficulty))),
    h("div", { class: "grid" },
      card("w6", "Savings", h("p", {}, "against one slow call for every question"), savings(view.savings)),
      card("w6", "Latency", h("p", {}, "median, and the 95th percentile in pale"), latency(view, paths))),
    view.targets.length ? card("", "Targets", h("p", {}, "the mean that the dial follows, over all questions under it"), targets(view.targets)) : null));
}

function figures(view, session) {
  const known = view.queries - view.cost_unknown;
  const marked = view.feedback.right + view.feedback.wrong;
  const trouble = [view.errors && plural(view.errors, "error"), view.degraded && `${count(view.degraded)} degraded`].filter(Boolean).join(", ");
  const { always_slow_usd: slow, usd_saved: usd } = view.savings;
  const saved = slow ? usd / slow : null;
  return h("div", { class: "grid figures" },
    figure("Questions", count(view.queries), trouble || "no errors"),
    figure("Calls per question", fixed(view.calls_per_query), session.policy === "cascade" ? `dial ${session.dial}` : `policy ${session.policy}`),
    figure("Spent", known ? money(view.cost_usd) : money(null),
      view.cost_unknown ? `${plural(view.cost_unknown, "question")} of unknown cost not in it` : saved === null ? `${money(view.cost_usd / known)} per question` : `${percent(Math.abs(saved))} ${saved < 0 ? "more" : "less"} than always slow`),
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

/** Mean cost of a question that took this path, over those whose cost is known; null where none is. */
function meanCost(path) {
  const known = path.queries - path.cost_unknown;
  return known > 0 ? path.cost_usd / known : null;
}

const SHOWN = 8;

function stages(counts) {
  const total = Object.values(counts).reduce((a, b) => a + b, 0);
  const rows = Object.entries(counts).slice(0, SHOWN);
  if (!total) return h("p", { class: "dim" }, "No question was routed in this time; those that name a model or a path do not count.");
  return bars(rows.map(([names, n]) => ({ name: names.replaceAll(",", ", "), className: "medium", share: n / total, value: percent(n / total) })));
}

/** Questions by tenths of d(x), stacked by path. */
function histogram({ bins, routed }) {
  const tenths = Array.from({ length: 10 }, (_, i) => Object.fromEntries(Object.entries(routed).map(([path, counts]) =>
    [path, counts.filter((_, j) => Math.floor((10 * j) / bins) === i).reduce((a, b) => a + b, 0)])));
  const sums = tenths.map((each) => Object.values(each).reduce((a, b) => a + b, 0));
  const top = Math.max(...sums);
  if (!(top > 0)) return h("p", { class: "dim" }, "No question was routed in this time.");
  return h("div", { class: "tenths" }, tenths.map((each, i) => [h("span", { class: "dim" }, fixed(i / 10, 1)),
    h("span", { style: { width: percent(sums[i] / top, 1) } }, sums[i] > 0 && mix(each, `d from ${fixed(i / 10, 1)}`)), h("span", { class: "r" }, count(sums[i]))]));
}

function pathTable(view, paths) {
  const accuracy = ({ right, wrong }) => (right + wrong ? `${percent(right / (right + wrong))} of ${count(right + wrong)}` : "–");
  return h("div", {},
    mix(Object.fromEntries(paths.map((p) => [p, view.paths[p].queries])), "Path mix"),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Path"), h("th", { class: "r" }, "Share"), h("th", { class: "r wide" }, "Questions"), h("th", { class: "r" }, "Calls"), h("th", { class: "r" }, "Mean cost"), h("th", { class: "r" }, "Right"))),
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

function savings(found) {
  const { always_slow_usd: slow } = found;
  const top = Math.max(found.cost_usd ?? 0, slow ?? 0) || 1;
  const row = (name, value, className) => ({ name: h("strong", {}, name), value: value === null ? h("span", { class: "dim" }, money(null)) : money(value), share: (value ?? 0) / top, className });
  const whole = (value) => count(Math.round(value)).replace("-", "−");
  return h("div", {},
    bars([row("With ODAR", found.cost_usd, "medium"), row("Always slow", slow, "direct")]),
    h("table", { class: "saved" },
      h("thead", {}, h("tr", {}, h("th", {}, "Saved"), h("th", { class: "r" }, "Dollars"), h("th", { class: "r" }, "Calls"), h("th", { class: "r" }, "Slow calls"))),
      h("tbody", {}, h("tr", {}, h("td", {}, "Against always slow"), [money(found.usd_saved), whole(found.calls_saved), whole(found.slow_calls_saved)].map((cell) => h("td", { class: "r" }, cell))))),
    h("p", { class: "note" },
      h("strong", {}, found.changed === null ? "No question was answered by fast and another agent. " : `Another agent changed ${percent(found.changed)} of the ${plural(found.compared, "fast answer")} it looked at. `),
      `Estimate over ${plural(found.questions - found.unpriced, "question")} — ${found.assumption} `,
      found.unpriced ? h("strong", {}, `${plural(found.unpriced, "question has", "questions have")} an unknown cost and ${found.unpriced === 1 ? "is" : "are"} left out; add price = { input = …, output = … } to [models."NAME"] in odar.toml.`) : "Every cost is known."));
}

function targets(rows) {
  const amount = (row, value) => (value === null ? "–" : row.kind === "calls" ? `${fixed(value)} calls` : money(value));
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "For"), h("th", { class: "r" }, "Target"), h("th", { class: "r" }, "Actual"), h("th", { class: "r" }, "Questions"), h("th", { class: "r" }, "Value ×"))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, row.scope), h("td", { class: "r" }, amount(row, row.target)), h("td", { class: "r" }, amount(row, row.actual)), h("td", { class: "r" }, count(row.questions)), h("td", { class: "r" }, fixed(row.factor)))))));
}

function latency(view, paths) {
  const shown = paths.filter((p) => view.paths[p].latency_s.p95 !== null);
  const top = Math.max(...shown.map((p) => view.paths[p].latency_s.p95)) || 1;
  return bars(shown.map((p) => {
    const { p50, p95 } = view.paths[p].latency_s;
    return { name: pathName(p), className: p, share: p50 / top, second: p95 / top, value: [h("strong", {}, seconds(p50)), h("span", { class: "dim" }, `  ${seconds(p95)}`)] };
  }));
}
