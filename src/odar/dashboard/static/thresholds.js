// The difficulty histogram with two thresholds to drag, and what the recorded traffic would have done with them.

import { fill, fresh, h, responsive, s, setStyle } from "./dom.js";
import { mix } from "./charts.js";
import { count, fixed, money, PATHS, pathName, percent, plural } from "./format.js";

/** Path counts, calls and cost that these thresholds would have led to. Pure: tested from Python through the page. */
export function simulate(bins, tau1, tau2, calls, costs) {
  const counts = { simple: 0, medium: 0, hard: 0 };
  const low = Math.round(tau1 * bins.length), high = Math.round(tau2 * bins.length);
  bins.forEach((n, i) => { counts[i < low ? "simple" : i < high ? "medium" : "hard"] += n; });
  return { counts, calls: sum(PATHS.map((p) => counts[p] * calls[p])), ...price(counts, costs) };
}

/** What so many queries of each path cost; unknown as soon as a path that is taken has no known price. */
function price(counts, costs) {
  const missing = PATHS.filter((p) => counts[p] > 0 && costs[p] === null);
  return { missing, cost: missing.length ? null : sum(PATHS.map((p) => counts[p] * (costs[p] ?? 0))) };
}

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** The whole card's content. */
export function thresholds(view, routing) {
  const routed = view.difficulty.routed;
  const bins = Array.from({ length: view.difficulty.bins }, (_, i) => sum(PATHS.map((p) => routed[p]?.[i] ?? 0)));
  const total = sum(bins);
  if (!total) {
    return h("div", { class: "empty" }, h("h2", {}, "No routed queries yet"),
      h("p", {}, "Thresholds are tried out on queries whose path was chosen by their difficulty. None was recorded in this time; queries that insist on a path do not count."));
  }
  const costs = Object.fromEntries(PATHS.map((p) => [p, meanCost(view.paths[p])]));
  const calls = { simple: 1, medium: 2, hard: 1 + routing.samples };
  const recorded = asRecorded(view, routed, costs);
  const state = { tau1: routing.tau1, tau2: routing.tau2 };
  const table = h("div", {});
  const marks = ["tau1", "tau2"].map((name) => slider(name, state, update));
  let rects = [];
  const chart = responsive((width) => {
    const drawn = histogram(width, bins);
    rects = drawn.rects;
    paint();
    return drawn.svg;
  });
  const reset = h("button", { type: "button", class: "quiet", onclick: () => set(routing.tau1, routing.tau2) }, "Reset");

  function set(tau1, tau2) {
    Object.assign(state, { tau1, tau2 });
    update();
  }
  function paint() {
    const low = Math.round(state.tau1 * bins.length), high = Math.round(state.tau2 * bins.length);
    rects.forEach((rect, i) => rect.setAttribute("class", `fillc ${i < low ? "simple" : i < high ? "medium" : "hard"}`));
  }
  function update() {
    paint();
    marks.forEach((mark) => mark.place());
    reset.disabled = state.tau1 === routing.tau1 && state.tau2 === routing.tau2;
    fill(table, comparison(recorded, simulate(bins, state.tau1, state.tau2, calls, costs), total, state));
  }
  const box = h("div", { class: "taus", role: "group", "aria-label": `Difficulty of ${plural(total, "query", "queries")}, with two thresholds to move` },
    chart, marks.map((mark) => mark.node));
  marks.forEach((mark) => mark.attach(box));
  update();
  return h("div", { class: "grid split" },
    h("div", { class: "w7" }, box, h("p", { class: "note" }, "Drag τ1 and τ2, or focus one and use the arrow keys (Shift for steps of 0.10). ", reset)),
    h("div", { class: "w5" }, table, notes(view, routing, costs, recorded, total)));
}

function asRecorded(view, routed, costs) {
  const counts = Object.fromEntries(PATHS.map((p) => [p, sum(routed[p] ?? [])]));
  const calls = sum(PATHS.map((p) => counts[p] * (view.paths[p]?.calls_per_query ?? 0)));
  return { counts, calls, ...price(counts, costs) };
}

/** Mean cost of a query that took this path, over those whose cost is known; null where none is. */
export function meanCost(path) {
  const known = path ? path.queries - path.cost_unknown : 0;
  return known > 0 ? path.cost_usd / known : null;
}

function comparison(recorded, tried, total, state) {
  const row = (name, a, b, className = "") => h("tr", {}, h("td", { class: "dim" }, name), h("td", { class: "r" }, a), h("td", { class: `r ${className}` }, h("strong", {}, b)));
  const share = (side, p) => percent(side.counts[p] / total, 1);
  return h("table", { class: "compare" },
    h("caption", { class: "hidden" }, "The recorded traffic, and what it would have been with these thresholds"),
    h("thead", {}, h("tr", {}, h("th", {}, ""), h("th", { class: "r" }, "Recorded"), h("th", { class: "r" }, `τ1 ${fixed(state.tau1)}, τ2 ${fixed(state.tau2)}`))),
    h("tbody", {},
      h("tr", {}, h("td", { class: "dim" }, "Mix"), h("td", {}, mix(recorded.counts, "Recorded")), h("td", {}, mix(tried.counts, "With these thresholds"))),
      PATHS.map((p) => row(pathName(p), share(recorded, p), share(tried, p))),
      row("Calls per query", fixed(recorded.calls / total), fixed(tried.calls / total)),
      row("Calls", count(Math.round(recorded.calls)), count(tried.calls)),
      row("Cost", money(recorded.cost), money(tried.cost)),
      row("Cost per query", recorded.cost === null ? money(null) : money(recorded.cost / total), tried.cost === null ? money(null) : money(tried.cost / total))));
}

function notes(view, routing, costs, recorded, total) {
  const hard = view.paths.hard?.calls_per_query;
  const unpriced = PATHS.filter((p) => costs[p] === null);
  return h("p", { class: "note" },
    `Over ${plural(total, "query", "queries")} whose difficulty chose the path. Calls are exact: 1, 2 and ${1 + routing.samples}. Cost is the recorded mean per path times the count.`,
    hard && hard < 1 + routing.samples - 0.005 ? ` Recorded Hard queries made ${fixed(hard)} calls on average, because sampling stops once the answer is settled.` : "",
    unpriced.length ? ` No query of known cost took ${unpriced.map(pathName).join(" or ")}, so a mix with it has no known cost.` : "");
}

function histogram(width, bins) {
  const height = width > 480 ? 300 : 210, bottom = 22;
  const each = width / bins.length;
  const gap = each > 5 ? 1.5 : each > 2.5 ? 0.75 : 0;
  const top = Math.max(...bins, 1);
  const rects = bins.map((n, i) => {
    const tall = n ? Math.max((n / top) * (height - bottom - 4), 2) : 0;
    return s("rect", { x: i * each + gap / 2, width: Math.max(each - gap, 0.5), y: height - bottom - tall, height: tall, rx: Math.min(1.5, each / 4) });
  });
  const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1].map((d) => s("text", { x: d * width, y: height - 6, "text-anchor": d === 0 ? "start" : d === 1 ? "end" : "middle" }, String(d)));
  const line = s("line", { x1: 0, x2: width, y1: height - bottom, y2: height - bottom, class: "axis" });
  return { rects, svg: s("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" }, rects, line, ticks) };
}

const LABELS = { tau1: "Threshold τ1, where Simple ends and Medium begins", tau2: "Threshold τ2, where Medium ends and Hard begins" };

/** One threshold: an ARIA slider that a mouse, a finger or the keyboard moves; τ1 never passes τ2. */
function slider(name, state, changed) {
  const label = h("b", {});
  const node = h("div", { class: "tau", id: fresh(name), "data-tau": name, role: "slider", tabindex: "0", "aria-label": LABELS[name], "aria-orientation": "horizontal" }, label);
  let box = null;

  function place() {
    const value = state[name];
    setStyle(node, { left: `${value * 100}%` });
    label.textContent = `${name === "tau1" ? "τ1" : "τ2"} ${fixed(value)}`;
    const near = state.tau2 - state.tau1 < 0.16; // the labels would cover each other: let them lean apart
    node.classList.toggle("left", value > 0.94 || (near && name === "tau1" && state.tau1 > 0.15));
    node.classList.toggle("right", value < 0.06 || (near && name === "tau2" && state.tau2 < 0.85));
    node.setAttribute("aria-valuemin", name === "tau1" ? "0" : fixed(state.tau1));
    node.setAttribute("aria-valuemax", name === "tau1" ? fixed(state.tau2) : "1");
    node.setAttribute("aria-valuenow", fixed(value));
  }
  function move(value) {
    const low = name === "tau1" ? 0 : state.tau1, high = name === "tau1" ? state.tau2 : 1;
    const rounded = Math.round(Math.min(Math.max(value, low), high) * 100) / 100;
    if (rounded === state[name]) return;
    state[name] = rounded;
    changed();
  }
  node.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 0.1 : 0.01;
    const to = { ArrowLeft: state[name] - step, ArrowDown: state[name] - step, ArrowRight: state[name] + step, ArrowUp: state[name] + step,
      PageDown: state[name] - 0.1, PageUp: state[name] + 0.1, Home: 0, End: 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  });
  node.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    node.focus();
    node.setPointerCapture(event.pointerId);
  });
  node.addEventListener("pointermove", (event) => {
    if (!node.hasPointerCapture(event.pointerId)) return;
    const area = box.getBoundingClientRect();
    move((event.clientX - area.left) / area.width);
  });
  return { node, place, attach: (parent) => { box = parent; } };
}
