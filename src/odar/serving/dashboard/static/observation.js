// Observation: what the cascade saves, how often it gives slow's answer, and where the two differ.

import { api } from "./api.js";
import { bars } from "./charts.js";
import { fill, h, longText, responsive, s } from "./dom.js";
import { count, fixed, money, percent, plural, signed, when } from "./format.js";
import { card, failed, figure, RANGES, scopeOf, segments } from "./parts.js";

export async function observationPage(main, { query, session, go, alive }) {
  const chosen = RANGES[query.range] ? query.range : "7d";
  const range = RANGES[chosen];
  const body = h("div", {});
  const picker = segments("Time range", Object.entries(RANGES).map(([id, r]) => [id, r.name]), chosen, (id) => go("/observation", { range: id }));
  fill(main, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Observation"), h("p", {}, scopeOf(session))), h("div", { class: "side" }, picker)), body);
  const since = range.ms === null ? null : new Date(Date.now() - range.ms).toISOString();
  let view;
  try {
    view = await api.observation({ since, step: range.step });
  } catch (error) {
    if (alive()) failed(body, error);
    return;
  }
  if (!alive()) return;
  const fallback = view.fallback_at && h("div", { class: "problem", role: "alert" },
    `Since ${when(view.fallback_at)} the slow model answers every request: the cascade differed from it too often. odar observe --resume lets the cascade answer again.`);
  if (!view.total.questions) return void fill(body, fallback, nothing(view, range));
  fill(body, h("div", { class: "stack" }, fallback, figures(view),
    h("div", { class: "grid" },
      card("w7", "Over time", h("p", {}, "share of the questions on which the cascade gives slow's answer"), timeline(view.series)),
      card("w5", "Cost", h("p", {}, "of the observed questions"), cost(view.total), settings(view))),
    h("div", { class: "grid" },
      card("w6", "By kind of question", null, table("Kind", view.kinds, (name) => name)),
      card("w6", "By key", null, table("Key", view.keys, (name) => name || "no key"), skills(view))),
    card("", "Differing answers", h("p", {}, "the last ones; either may be right"), differing(view.differing, session))));
}

const nothing = (view, range) => h("div", { class: "card empty" }, h("h2", {}, range.ms === null ? "Nothing is observed yet" : `Nothing was observed in the last ${range.name}`),
  h("p", {}, view.enabled ? "Every request goes to the slow model. Questions that arrive now are observed." : view.share > 0 ? "A share of the questions that arrive now is also answered by the slow model." : "To see what ODAR would save, without changing a reply:"),
  !view.enabled && !view.share && h("pre", {}, "odar serve --observe"), lost(view));

const lost = ({ dropped }) => Object.keys(dropped).length > 0 && h("p", { class: "note" },
  `Not observed since the start: ${Object.entries(dropped).map(([why, n]) => `${count(n)} (${{ queue: "queue full", budget: "no budget left, or a price is unknown", failed: "a model failed" }[why] ?? why})`).join(", ")}.`);

const bounds = ({ low, high }) => `[${fixed(100 * low, 1)}, ${fixed(100 * high, 1)}]`;
const interval = ({ mean, low, high }, digits = 1) => (mean === null ? "–" : `${percent(mean, digits)} [${fixed(100 * low, digits)}, ${fixed(100 * high, digits)}]`);

function figures(view) {
  const { total, excess } = view;
  const points = (value) => signed(100 * value, 1);
  return h("div", { class: "grid" },
    figure(view.enabled ? "Would be saved" : "Saved", percent(total.saved), `of ${money(total.slow_usd)} for one slow call each, ${plural(total.questions, "question")}`),
    figure("Same answer as slow", percent(total.agreement.mean, 1), total.compared ? `${bounds(total.agreement)} of ${count(total.compared)} that have an answer to compare` : "nothing to compare yet"),
    figure("Slow itself, asked again", percent(total.slow_agreement.mean, 1), total.repeated ? `${bounds(total.slow_agreement)} of ${count(total.repeated)}` : "not asked a second time yet"),
    figure("Excess difference", excess.mean === null ? "–" : `${points(excess.mean)} points`, excess.mean === null ? "cascade against slow, beyond slow against itself" : `[${points(excess.low)}, ${points(excess.high)}] of ${plural(view.excess_questions, "question")}; falls back above ${points(view.at_most_differ)}`));
}

const cost = (total) => {
  const top = Math.max(total.slow_usd, total.cascade_usd) || 1;
  return bars([["Cascade", total.cascade_usd, "medium"], ["Always slow", total.slow_usd, "direct"], ["Observing", total.spent_usd, "none"]]
    .map(([name, usd, className]) => ({ name: h("strong", {}, name), value: money(usd), share: Math.min(1, usd / top), className })));
};

function settings(view) {
  const said = h("span", { role: "status" });
  const copy = async () => {
    try { await navigator.clipboard.writeText(view.toml); said.textContent = "Copied"; } catch { said.textContent = "Select the lines and copy them."; lines.open = true; }
  };
  const lines = h("details", {}, h("summary", {}, "odar.toml"), h("pre", {}, view.toml));
  return h("div", {}, h("p", { class: "note" }, `Observing costs at most ${money(view.budget_usd_day)} a day; ${money(view.spent_today_usd)} today.`), lost(view),
    h("p", {}, h("button", { type: "button", class: "primary", onclick: copy }, "Copy the settings"), " ", said), lines);
}

const table = (title, rows, named) => h("div", { class: "scroll" }, h("table", {},
  h("thead", {}, h("tr", {}, [title, "Questions", "Saved", "Same as slow", "Slow again"].map((name, i) => h("th", { class: i ? "r" : null }, name)))),
  h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, named(row.name)), [count(row.questions), percent(row.saved), interval(row.agreement, 0), interval(row.slow_agreement, 0)].map((cell) => h("td", { class: "r nowrap" }, cell)))))));

const skills = ({ skills: rows }) => rows.some((row) => row.learned !== null) && h("p", { class: "note" },
  h("strong", {}, "Skills from agreement: "), rows.map((row) => `${row.agent} ${fixed(row.learned)} (expected ${fixed(row.expected)})`).join(", "), ".");

/** Agreement with its interval for every step of time, as points with bars. */
function timeline(rows) {
  const shown = rows.filter((row) => row.compared);
  if (!shown.length) return h("p", { class: "dim" }, "Nothing to compare in this time.");
  const label = `Agreement with slow: ${shown.map((row) => `${row.name} ${percent(row.agreement.mean)}`).join(", ")}`;
  return responsive((width) => {
    const height = 190, left = 40, bottom = 22;
    const x = (i) => left + ((i + 0.5) * (width - left)) / shown.length;
    const y = (share) => 6 + (height - bottom - 6) * (1 - share);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
    for (const share of [0, 0.5, 1]) {
      svg.append(s("line", { x1: left, x2: width, y1: y(share), y2: y(share), class: share ? "gridline" : "axis" }), s("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, percent(share)));
    }
    const skip = Math.max(1, Math.ceil(shown.length / Math.max(1, Math.floor((width - left) / 110))));
    shown.forEach((row, i) => {
      const { mean, low, high } = row.agreement;
      svg.append(s("line", { x1: x(i), x2: x(i), y1: y(low), y2: y(high), class: "axis", "stroke-width": 3 }), s("circle", { cx: x(i), cy: y(mean), r: 4, class: "fillc medium" },
        s("title", {}, `${row.name}: ${interval(row.agreement)} of ${row.compared}`)));
      if (i % skip === 0) svg.append(s("text", { x: x(i), y: height - 5, "text-anchor": "middle" }, row.name.slice(5).replace("T", " ")));
    });
    return svg;
  });
}

function differing(rows, session) {
  if (!rows.length) return h("p", { class: "dim" }, "None.");
  if (!session.content) return h("p", { class: "dim" }, `${plural(rows.length, "question")} among the last ones differ. Texts are kept with store.content = true only.`);
  return h("div", { class: "stack" }, rows.map((row) => h("article", {}, h("h3", { dir: "auto" }, (row.question ?? "").slice(0, 300)),
    h("p", { class: "dim" }, `${when(row.at)}, ${row.kind}, asked ${row.stages.replaceAll(",", ", ")}${row.slow_same === null ? "" : row.slow_same ? "; slow gave its answer again" : "; slow gave another answer when asked again"}`),
    h("div", { class: "candidates" }, [["Slow", row.slow_answer], ["Cascade", row.cascade_answer]].map(([name, text]) =>
      h("div", { class: "candidate" }, h("header", {}, h("h3", {}, name)), longText(text ?? "")))))));
}
