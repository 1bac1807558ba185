// Traces: a live table with filters, pages and the keyboard.

import { address, api, key, send } from "./api.js";
import { pathChip } from "./charts.js";
import { fill, h } from "./dom.js";
import { clock, count, fixed, money, plural, seconds, when } from "./format.js";
import { failed, marks, noTraces, scopeOf, select } from "./parts.js";

const LIMIT = 50;
const POLL_MS = 2000;
const TIMES = { "": "Time", "3600e3": "Last hour", "86400e3": "Last 24 h", "604800e3": "Last 7 days" };
const NAMES = ["q", "path", "model", "status", "degraded", "feedback", "time", "min_difficulty", "max_difficulty"];
const ID = /^[0-9a-f]{6,32}$/;

export async function tracesPage(main, { query, session, go, alive }) {
  const wanted = Object.fromEntries(NAMES.map((name) => [name, query[name] ?? ""]));
  const state = { after: [], rows: [], next: null, live: true, seen: null, at: null };
  const body = h("div", { class: "card traces" });
  const status = h("button", { type: "button", class: "quiet live", onclick: () => { state.live = !state.live; label(); tick(); } });
  const download = h("a", { class: "button", href: address("/export", params()), download: "odar-traces.jsonl", onclick: exportAll }, "Export JSONL");
  const note = h("span", { role: "status", class: "dim" });
  fill(main,
    h("div", { class: "head" }, h("div", {}, h("h1", {}, "Traces"), h("p", {}, scopeOf(session))), h("div", { class: "side" }, note, status, download)),
    filters(wanted, session, (change) => go("/traces", { ...wanted, ...change })), body);

  function params() {
    const { q, time, ...rest } = wanted;
    const since = TIMES[time] && time ? new Date(Date.now() - Number(time)).toISOString() : "";
    return { ...rest, ...(ID.test(q) ? { id: q } : { text: q }), since };
  }

  /** With a key the file is fetched, because an address must not hold one; without, the browser saves it as it comes. */
  async function exportAll(event) {
    if (!key.get()) return;
    event.preventDefault();
    note.textContent = "Exporting…";
    try {
      const blob = await (await send("/export", { params: params() })).blob();
      const link = h("a", { href: URL.createObjectURL(blob), download: "odar-traces.jsonl" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      note.textContent = "";
    } catch (error) {
      note.textContent = error.message;
    }
  }

  function label() {
    const following = state.live && !state.after.length;
    status.classList.toggle("off", !following);
    status.setAttribute("aria-pressed", String(state.live));
    status.title = "Pause or resume (p)";
    status.textContent = !state.live ? "Paused" : state.after.length ? "Live on the first page" : state.at ? `Live, ${clock(state.at)}` : "Live";
  }

  async function load() {
    const page = await api.traces({ ...params(), limit: LIMIT, after: state.after.at(-1) ?? "" });
    if (!alive()) return;
    Object.assign(state, { rows: page.traces, next: page.next, at: new Date() });
    label();
    draw();
  }

  function draw() {
    if (!state.rows.length && !state.after.length) {
      const filtered = NAMES.some((name) => wanted[name]);
      return void fill(body, filtered ? nothing(wanted, session, () => go("/traces", {})) : h("div", { class: "empty" }, [...noTraces(session, "yet").childNodes]));
    }
    const focused = body.querySelector("tbody tr:focus")?.dataset.id;
    const fresh = state.seen ?? new Set(state.rows.map((row) => row.id));
    fill(body, table(state.rows, fresh), pager());
    state.seen = new Set([...fresh, ...state.rows.map((row) => row.id)]);
    const rows = [...body.querySelectorAll("tbody tr")];
    const at = rows.find((row) => row.dataset.id === focused);
    if (rows.length) (at ?? rows[0]).tabIndex = 0;
    at?.focus({ preventScroll: true });
  }

  function pager() {
    const turn = (change) => async () => { change(); state.seen = null; try { await load(); scrollTo(0, 0); } catch (error) { failed(body, error); } };
    return h("div", { class: "pager" }, h("span", {}, `Page ${state.after.length + 1}, ${plural(state.rows.length, "trace")}`), h("div", {},
      h("button", { type: "button", disabled: !state.after.length, onclick: turn(() => state.after.pop()) }, "Newer"),
      h("button", { type: "button", disabled: !state.next, onclick: turn(() => state.after.push(state.next)) }, "Older")));
  }

  let timer = 0;
  function tick() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!alive()) return;
      if (state.live && !state.after.length && !document.hidden) {
        try { await load(); } catch (error) { note.textContent = error.message; if (error.status === 401) return; }
      }
      tick();
    }, POLL_MS);
  }

  body.addEventListener("keydown", (event) => move(event, body));
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    if (row && !event.target.closest("a") && !getSelection().toString()) location.hash = `#/traces/${row.dataset.id}`;
  });
  label();
  try { await load(); } catch (error) { if (alive()) failed(body, error); return undefined; }
  tick();
  return { pause: () => status.click(), search: () => main.querySelector("input[type=search]").focus() };
}

function filters(wanted, session, changed) {
  const text = h("input", { type: "search", value: wanted.q, "aria-label": "Search", "aria-keyshortcuts": "/", maxlength: "200",
    placeholder: session.content ? "Search texts or a trace id  ( / )" : "Find by the beginning of an id  ( / )",
    onchange: () => changed({ q: text.value.trim() }) });
  const choose = (name, label, choices) => select(label, choices, wanted[name], (value) => changed({ [name]: value }));
  const bound = (name, label) => h("input", { type: "number", min: "0", max: "1", step: "0.05", value: wanted[name], "aria-label": label, placeholder: name.startsWith("min") ? "0" : "1", onchange: (event) => changed({ [name]: event.target.value && String(Number(event.target.value)) }) });
  const models = choose("model", "Model", [["", "Model"], ...(wanted.model ? [[wanted.model, wanted.model]] : [])]);
  fillModels(models, wanted.model);
  return h("form", { class: "filters", role: "search", onsubmit: (event) => { event.preventDefault(); changed({ q: text.value.trim() }); } },
    text,
    choose("path", "Path", [["", "Path"], ["simple", "Simple"], ["medium", "Medium"], ["hard", "Hard"], ["direct", "Direct"]]),
    models,
    choose("status", "Outcome", [["", "Outcome"], ["ok", "Answered"], ["error", "Failed"], ["cancelled", "Cancelled"]]),
    choose("degraded", "Degraded", [["", "Degraded?"], ["true", "Degraded"], ["false", "Whole"]]),
    choose("feedback", "Feedback", [["", "Feedback"], ["right", "Right"], ["wrong", "Wrong"], ["none", "Not marked"]]),
    choose("time", "Time", Object.entries(TIMES)),
    h("span", { class: "range" }, "d", bound("min_difficulty", "Least difficulty"), "to", bound("max_difficulty", "Most difficulty")));
}

async function fillModels(node, chosen) {
  try {
    const { models } = await api.models();
    fill(node, [["", "Model"], ...models.filter((m) => m.usable || m.name === chosen).map((m) => [m.name, m.name])].map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  } catch { /* the list is a convenience */ }
}

function nothing(wanted, session, clear) {
  return h("div", { class: "empty" }, h("h2", {}, "No trace matches"),
    wanted.q && !ID.test(wanted.q) && !session.content ? h("p", {}, "Texts are not kept here (store.content = false), so only ids can be searched.") : h("p", {}, "Loosen a filter, or clear all of them."),
    h("button", { type: "button", onclick: clear }, "Clear filters"));
}

function table(rows, seen) {
  const head = [["Started"], ["Path"], ["d", "r"], ["Question"], ["Models"], ["Calls", "r"], ["Tokens", "r tok"], ["Cost", "r"], ["Time", "r"], ["", ""]];
  return h("table", { "aria-label": "Traces, newest first; arrow keys move, Enter opens" },
    h("thead", {}, h("tr", {}, head.map(([name, side]) => h("th", { class: side }, name || h("span", { class: "hidden" }, "Marks"))))),
    h("tbody", {}, rows.map((row) => line(row, !seen.has(row.id)))));
}

function line(row, isNew) {
  const tokens = row.tokens_in === null || row.tokens_out === null ? null : row.tokens_in + row.tokens_out;
  return h("tr", { "data-id": row.id, tabindex: "-1", class: isNew ? "fresh" : null },
    h("td", { class: "nowrap" }, h("a", { href: `#/traces/${row.id}`, tabindex: "-1" }, when(row.started_at))),
    h("td", {}, row.path ? pathChip(row.path) : h("span", { class: "dim" }, "–")),
    h("td", { class: "r d-cell" }, fixed(row.difficulty)),
    h("td", { class: "what", dir: "auto" }, row.question ? row.question : h("span", { class: "dim" }, plural(row.query_characters, "character"))),
    h("td", { class: "models" }, row.models.join(", ")),
    h("td", { class: "r calls-cell" }, count(row.calls)),
    h("td", { class: "r tok" }, tokens === null ? h("span", { class: "dim" }, "unknown") : count(tokens)),
    h("td", { class: "r nowrap cost-cell" }, row.cost_usd === null ? h("span", { class: "dim" }, "unknown") : money(row.cost_usd)),
    h("td", { class: "r nowrap time-cell" }, seconds(row.seconds)),
    h("td", { class: "marks-cell" }, h("div", { class: "marks" }, marks(row))));
}

/** Arrow keys, j and k move between rows; Enter opens. */
function move(event, body) {
  const rows = [...body.querySelectorAll("tbody tr")];
  const at = rows.indexOf(document.activeElement);
  if (at < 0) return;
  const to = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (event.key === "Enter") location.hash = `#/traces/${rows[at].dataset.id}`;
  if (to === undefined || !rows[to]) return;
  event.preventDefault();
  rows[at].tabIndex = -1;
  rows[to].tabIndex = 0;
  rows[to].focus();
}
