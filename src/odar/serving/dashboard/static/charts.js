// Small charts in SVG and HTML: a stacked time series, a mix, bars; and one tooltip for all of them.

import { h, responsive, s, setStyle } from "./dom.js";
import { count, day, hour, pathName, percent } from "./format.js";

let tip = null;

/** Show a text beside the pointer or the element; null hides it. */
export function showTip(text, target) {
  tip ??= document.body.appendChild(h("div", { class: "tip", role: "presentation", hidden: true }));
  tip.hidden = text === null;
  if (text === null) return;
  tip.textContent = text;
  const at = target.getBoundingClientRect();
  const own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = at.top - own.height - 8;
  setStyle(tip, { left: `${left}px`, top: `${above > 4 ? above : at.bottom + 8}px` });
}

/** The chip of a path. */
export const pathChip = (path) => h("span", { class: `chip ${path ?? "none"}` }, pathName(path));

/** Which colour is which path. */
export const pathLegend = (paths) =>
  h("div", { class: "legend" }, paths.map((p) => h("span", {}, h("i", { class: p }), pathName(p))));

/** Shares of paths as one bar. */
export function mix(counts, label) {
  const total = Object.values(counts).reduce((a, b) => a + b, 0);
  const parts = Object.entries(counts).filter(([, n]) => n > 0);
  const said = parts.map(([p, n]) => `${pathName(p)} ${percent(n / total)}`).join(", ") || "nothing";
  return h("div", { class: "mix", role: "img", "aria-label": `${label}: ${said}` },
    parts.map(([p, n]) => h("i", { class: p, style: { flex: String(n) } })));
}

/** Rows of name, bar, value. Each: {name, value, share, second, className}. */
export const bars = (rows) => h("div", { class: "bars" }, rows.map((row) => [
  h("span", { class: "name" }, row.name),
  h("span", { class: "track" },
    row.second > 0 && h("i", { class: `faint ${row.className ?? ""}`, style: { width: percent(row.second, 2) } }),
    row.share > 0 && h("i", { class: row.className, style: { width: percent(row.share, 2) } })),
  h("span", { class: "value" }, row.value),
]));

const STEP_MS = { minute: 60e3, hour: 3600e3, day: 86400e3 };
const TAIL = { minute: ":00Z", hour: ":00:00Z", day: "T00:00:00Z" };

/** Questions over time, stacked by path. `points` come as the server sums them, in UTC. */
export function series(points, step, since, paths) {
  const size = STEP_MS[step];
  const at = (name) => Date.parse(name + TAIL[step]);
  const first = since ?? (points.length ? at(points[0].at) : Date.now());
  const from = Math.floor(first / size) * size;
  const slots = Math.max(Math.floor((Date.now() - from) / size) + 1, 1);
  const table = Array.from({ length: slots }, () => ({}));
  for (const point of points) {
    const slot = table[Math.round((at(point.at) - from) / size)];
    if (slot) slot[point.path] = point.queries;
  }
  const sums = table.map((slot) => Object.values(slot).reduce((a, b) => a + b, 0));
  const top = nice(Math.max(...sums, 1));
  const total = sums.reduce((a, b) => a + b, 0);
  const label = `Questions over time: ${count(total)} in ${slots} ${step}s, at most ${count(Math.max(...sums))} in one`;
  return responsive((width) => drawSeries(width, { table, sums, top, from, size, step, paths, label }));
}

function drawSeries(width, { table, sums, top, from, size, step, paths, label }) {
  const height = 190, bottom = 22, left = 34;
  const each = (width - left) / table.length;
  const gap = each > 6 ? Math.min(3, each * 0.2) : each > 3 ? 1 : 0;
  const y = (n) => (height - bottom) * (1 - n / top) + 6 * (n / top);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  for (const n of [0, top / 2, top]) {
    if (Number.isInteger(n) || n === 0) {
      svg.append(s("line", { x1: left, x2: width, y1: y(n), y2: y(n), class: n ? "gridline" : "axis" }));
      svg.append(s("text", { x: left - 8, y: y(n) + 4, "text-anchor": "end" }, compact(n)));
    }
  }
  table.forEach((slot, i) => {
    const x = left + i * each;
    let base = 0;
    for (const path of paths) {
      const n = slot[path] ?? 0;
      if (n) svg.append(s("rect", { class: `fillc ${path}`, x, width: Math.max(each - gap, 1), y: y(base + n), height: Math.max(y(base) - y(base + n), 0.75) }));
      base += n;
    }
    const moment = new Date(from + i * size);
    const text = `${stamp(moment, step)}\n${count(sums[i])} ${sums[i] === 1 ? "question" : "questions"}` + paths.filter((p) => slot[p]).map((p) => `\n${pathName(p)} ${count(slot[p])}`).join("");
    svg.append(s("rect", { x, y: 0, width: each, height: height - bottom, fill: "transparent",
      onmouseenter: (event) => showTip(text, event.target), onmouseleave: () => showTip(null) }));
  });
  const marks = Math.max(2, Math.floor(width / 130));
  const skip = Math.max(1, Math.ceil(table.length / marks));
  for (let i = 0; i < table.length; i += skip) {
    const x = left + (i + 0.5) * each;
    if (x > width - 30 && i) continue;
    svg.append(s("text", { x, y: height - 5, "text-anchor": i ? "middle" : "start" }, stamp(new Date(from + i * size), step, true)));
  }
  return svg;
}

const stamp = (date, step, short) => (step === "day" ? day(date) : short ? hour(date) : `${day(date)}, ${hour(date)}`);

/** The next round number. */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((m) => m * power).find((n) => n >= value);
}

export const compact = (n) => (n >= 10_000 ? `${Math.round(n / 1000)}k` : String(n));
