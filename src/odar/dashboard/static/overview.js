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
    view.warnings.map((text) => h("div", { class: "aside", role: "status" }, text)),
    figures(view, session),
    h("div", { class: "grid" },
      card("w7", "Queries over time", pathLegend(paths), series(view.timeline, range.step, since, paths)),
      card("w5", "Paths", null, pathTable(view, paths))),
    card("", "Where the thresholds lie", h("p", {}, "d(x), the difficulty that chose the path"), thresholds(view, session.routing)),
    h("div", { class: "grid" },
      card("w6", "Savings", h("p", {}, "net of ODAR's own calls, against doing the same with every question"), savings(view.savings)),
      card("w6", "Latency", h("p", {}, "median, and the 95th percentile in pale"), latency(view, paths))),
    view.targets.length ? card("", "Targets", h("p", {}, "the mean that the thresholds follow, over all questions under it"), targets(view.targets)) : null));
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
  const { cost_usd: spent, always_slow: slow } = view.savings;
  const saved = slow.cost_usd ? slow.usd_saved / slow.cost_usd : null;
  return h("div", { class: "grid figures" },
    figure("Queries", count(view.queries), trouble || "no errors"),
    figure("Calls per query", fixed(view.calls_per_query), `${percent(view.calls_per_query / hard)} of the ${hard} of always Hard`),
    figure("Spent", known ? money(view.cost_usd) : money(null),
      view.cost_unknown ? `${plural(view.cost_unknown, "query", "queries")} of unknown cost not in it` : saved === null || spent === null ? `${money(view.cost_usd / known)} per query` : `${percent(Math.abs(saved))} ${saved < 0 ? "more" : "less"} than always slow`),
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

function savings(found) {
  const { always_slow: slow, always_hard: hard } = found;
  const top = Math.max(found.cost_usd ?? 0, hard.cost_usd ?? 0, slow.cost_usd ?? 0) || 1;
  const row = (name, value, className, why) => ({ name: h("strong", {}, name), value: value === null ? h("span", { class: "dim", title: why }, money(null)) : money(value), share: (value ?? 0) / top, className });
  const whole = (value) => (value === null ? money(null) : count(Math.round(value)).replace("-", "−"));
  const line = (name, ...cells) => h("tr", {}, h("td", {}, name), cells.map((cell) => h("td", { class: "r" }, cell)));
  return h("div", {},
    bars([
      row("As it was", found.cost_usd, "medium", "no query has a known cost"),
      row("Always slow", slow.cost_usd, "direct", "no slow answer of known cost was recorded"),
      row("Always Hard", hard.cost_usd, "hard", "no Hard query of known cost was recorded"),
    ]),
    h("table", { class: "saved" },
      h("thead", {}, h("tr", {}, h("th", {}, "Saved against"), h("th", { class: "r" }, "Dollars"), h("th", { class: "r" }, "Calls"), h("th", { class: "r" }, "Slow calls"))),
      h("tbody", {}, line("Always slow", money(slow.usd_saved), whole(slow.calls_saved), whole(slow.slow_calls_saved)), line("Always Hard", money(hard.usd_saved), whole(hard.calls_saved), "–"))),
    h("p", { class: "note" },
      h("strong", {}, found.changed === null ? "No question was answered by both agents. " : `The slow model changed ${percent(found.changed)} of the ${plural(found.compared, "answer")} it looked at. `),
      `Estimate over ${plural(found.questions, "question")} — ${found.assumption} `,
      found.cost_unknown ? h("strong", {}, `${plural(found.cost_unknown, "query has", "queries have")} an unknown cost.`) : "Every cost is known."));
}

function targets(rows) {
  const amount = (row, value) => (value === null ? "–" : row.kind === "calls" ? `${fixed(value)} calls` : money(value));
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "For"), h("th", { class: "r" }, "Target"), h("th", { class: "r" }, "Actual"), h("th", { class: "r" }, "Questions"), h("th", { class: "r" }, "t"))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, row.scope), h("td", { class: "r" }, amount(row, row.target)), h("td", { class: "r" }, amount(row, row.actual)), h("td", { class: "r" }, count(row.questions)), h("td", { class: "r" }, fixed(row.t)))))));
}

function latency(view, paths) {
  const shown = paths.filter((p) => view.paths[p].latency_s.p95 !== null);
  const top = Math.max(...shown.map((p) => view.paths[p].latency_s.p95)) || 1;
  return bars(shown.map((p) => {
    const { p50, p95 } = view.paths[p].latency_s;
    return { name: pathName(p), className: p, share: p50 / top, second: p95 / top, value: [h("strong", {}, seconds(p50)), h("span", { class: "dim" }, `  ${seconds(p95)}`)] };
  }));
}
