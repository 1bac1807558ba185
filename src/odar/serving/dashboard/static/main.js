// The frame: routes, theme, key, help and shortcuts. Pages are functions that fill <main>.

import { api, key } from "./api.js";
import { fill, h, s } from "./dom.js";
import { modelsPage } from "./models.js";
import { observationPage } from "./observation.js";
import { overviewPage } from "./overview.js";
import { failed } from "./parts.js";
import { playgroundPage } from "./playground.js";
import { tracePage } from "./trace.js";
import { tracesPage } from "./traces.js";

const main = document.getElementById("main");
const PAGES = { "": ["overview", overviewPage], traces: ["traces", tracesPage], models: ["models", modelsPage], observation: ["observation", observationPage], playground: ["playground", playgroundPage] };
let visit = 0, current = null, session = null;

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/");
  const [page, show] = name === "traces" && id ? ["traces", tracePage] : PAGES[name] ?? PAGES[""];
  return { page, show, id: id && decodeURIComponent(id), query: Object.fromEntries(new URLSearchParams(query)) };
}

function go(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null);
  const text = new URLSearchParams(given).toString();
  location.hash = `#${path}${text ? `?${text}` : ""}`;
}

async function render() {
  const mine = ++visit;
  const alive = () => mine === visit;
  const { page, show, id, query } = route();
  current?.leave?.();
  current = null;
  document.title = `${page[0].toUpperCase()}${page.slice(1)} · ODAR`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    session ??= await api.session();
    showKey();
    if (alive()) {
      scrollTo(0, 0);
      const made = await show(main, { id, query, session, go, alive });
      if (alive()) current = made;
    }
  } catch (error) {
    if (alive()) failed(fill(main), error);
    if (error.status === 401) askKey(error.code === "invalid_api_key" ? error.message : "");
  }
  if (alive()) main.setAttribute("aria-busy", "false");
}

// ── the key ─────────────────────────────────────────────────────────────────────────────────────────────────────

const keyButton = document.getElementById("key");

function showKey() {
  keyButton.hidden = session?.key === null;
  if (session?.key) keyButton.textContent = session.key.name || "Key";
}

function askKey(problem = "") {
  if (document.querySelector("dialog[open]")) return;
  const field = h("input", { type: "password", autocomplete: "off", spellcheck: "false", "aria-label": "API key", placeholder: "odar_sk_…", required: true });
  const forget = h("button", { type: "button", class: "quiet", hidden: !key.get(), onclick: () => { key.set(""); session = null; dialog.close(); render(); } }, "Forget the key");
  const dialog = h("dialog", { "aria-label": "API key", onclose: () => dialog.remove() },
    h("form", { onsubmit: (event) => { event.preventDefault(); key.set(field.value.trim()); session = null; dialog.close(); render(); } },
      h("h2", {}, "This server asks for a key"),
      h("p", { class: "dim" }, "One made by odar keys create. It is kept in this tab until you close it, and sent as a header. A key sees its own questions; one made with --admin sees all."),
      problem && h("p", { class: "problem", role: "alert" }, problem), field,
      h("div", { class: "row" }, forget, h("button", { type: "submit", class: "primary" }, "Continue"))));
  document.body.append(dialog);
  dialog.showModal();
}
keyButton.addEventListener("click", () => askKey());

// ── the theme ───────────────────────────────────────────────────────────────────────────────────────────────────

const themeButton = document.getElementById("theme");
const THEMES = ["system", "light", "dark"];
const ICONS = {
  system: ["M12 3a9 9 0 1 0 0 18z", "M12 3a9 9 0 0 1 0 18"],
  light: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5"],
  dark: ["M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z", ""],
};

const theme = () => document.documentElement.dataset.theme ?? "system";

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try { name === "system" ? localStorage.removeItem("odar-theme") : localStorage.setItem("odar-theme", name); } catch { /* for this page only */ }
  const [solid, strokes] = ICONS[name];
  fill(themeButton, s("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true", fill: "none", stroke: "currentColor", "stroke-width": 1.8, "stroke-linecap": "round" }, s("path", { d: solid, fill: "currentColor" }), strokes && s("path", { d: strokes })));
  themeButton.setAttribute("aria-label", `Theme: ${name}. Change it`);
  themeButton.title = `Theme: ${name} (t)`;
}
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
themeButton.addEventListener("click", nextTheme);
setTheme(theme());

// ── help and shortcuts ──────────────────────────────────────────────────────────────────────────────────────────

const SHORTCUTS = [
  [["/"], "Search traces; in the playground, the question"], [["g", "o"], "Overview"], [["g", "t"], "Traces"], [["g", "b"], "Observation"], [["g", "m"], "Models"], [["g", "p"], "Playground"],
  [["↑", "↓"], "Move between traces (also j and k), Enter opens one"], [["←", "→"], "Move from token to token"], [["p"], "Pause or resume the live table"], [["t"], "Theme"], [["?"], "This help"],
];

function help() {
  if (document.querySelector("dialog[open]")) return;
  const dialog = h("dialog", { "aria-label": "Help", onclose: () => dialog.remove() }, h("h2", {}, "Keyboard"),
    h("div", { class: "keys" }, SHORTCUTS.map(([keys, what]) => [h("span", {}, keys.map((k) => [h("kbd", {}, k), " "])), h("span", {}, what)])),
    h("h2", { class: "second" }, "Words"),
    h("p", { class: "dim" }, "d(x) is the estimated difficulty of a question. After every answer ODAR asks whether another call is worth its price; p is the probability that the leading answer is right. Simple, Medium and Hard tell what happened: no slow call, one, several. Direct queries name their model."),
    h("div", { class: "row" }, session && h("span", { class: "dim version" }, `odar ${session.version}`), h("button", { type: "button", class: "primary", autofocus: true, onclick: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}
document.getElementById("help").addEventListener("click", help);

let lead = "";
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest?.("input:not([type=radio]), textarea, select, dialog")) return;
  const chord = lead === "g" ? { o: "/", t: "/traces", b: "/observation", m: "/models", p: "/playground" }[event.key] : undefined;
  lead = event.key === "g" ? "g" : "";
  if (chord) return void go(chord);
  const act = { "?": help, t: nextTheme, p: current?.pause, "/": current?.search ?? (() => { go("/traces"); }) }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// An ordinary link to #main would be taken for a route.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => { render().then(() => main.focus({ preventScroll: true })); });
addEventListener("odar-again", () => { session = null; render(); });
render();
