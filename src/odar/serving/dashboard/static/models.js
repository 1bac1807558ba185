// Models: what each can do and costs, how its free energies are aligned and whether they drift, and its breaker.

import { api } from "./api.js";
import { fill, h } from "./dom.js";
import { count, fixed, num, percent, rate, seconds, signed } from "./format.js";
import { failed } from "./parts.js";

const CAPABILITIES = [["logprobs", "log-probs"], ["images", "images"], ["n", "n samples"]];
const BREAKERS = { closed: ["good", "Closed"], half_open: ["warn", "Half open"], open: ["bad", "Open"] };

export async function modelsPage(main, { session, alive }) {
  const body = h("div", {});
  fill(main, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Models"), h("p", {}, `Profile ${session.profile}. Prices in US dollars per million tokens.`))), body);
  let report;
  try {
    report = await api.models();
  } catch (error) {
    if (alive()) failed(body, error);
    return;
  }
  if (!alive()) return;
  const inUse = report.models.filter((model) => model.agents.length);
  const others = report.models.filter((model) => !model.agents.length);
  const usable = others.filter((model) => model.usable), locked = others.filter((model) => !model.usable);
  fill(body, h("div", { class: "stack" },
    group("The agents' models", inUse, report),
    usable.length > 0 && h("section", { "aria-label": "Can be asked by name" }, h("h2", { class: "above" }, "Can be asked by name"), h("div", { class: "card listed" }, list(usable, report))),
    locked.length > 0 && h("details", { class: "card" }, h("summary", {}, `${count(locked.length)} more in the catalogue, without a key for their provider`), list(locked, report))));
}

const group = (title, models, report) => h("section", { "aria-label": title },
  h("h2", { class: "above" }, title), h("div", { class: "card catalogue" }, models.map((model) => entry(model, report))));

/** Models that no agent uses, a line each. */
const list = (models, report) => h("div", { class: "scroll" }, h("table", {},
  h("thead", {}, h("tr", {}, [["Model"], ["Input", "r"], ["Cached", "r"], ["Output", "r"], ["Context", "r"], ["Can"], ["μ / σ"], ["Breaker"]].map(([name, side]) => h("th", { class: side }, name)))),
  h("tbody", {}, models.map((model) => h("tr", {}, h("td", { class: "nowrap" }, model.name, h("span", { class: "dim" }, ` ${model.provider}`)),
    ["input", "cached", "output"].map((kind) => h("td", { class: "r" }, model.price === null ? h("span", { class: "dim" }, "unknown") : rate(model.price[kind]))),
    h("td", { class: "r" }, model.context ? count(model.context) : h("span", { class: "dim" }, "unknown")),
    h("td", { class: "dim nowrap" }, CAPABILITIES.filter(([name]) => model[name]).map(([, text]) => text).join(", ") || "–"),
    h("td", { class: "dim nowrap" }, model.statistics.length ? `${count(model.statistics.length)} calibrated` : "–"),
    h("td", { class: "nowrap" }, breaker(report.breakers[model.provider], model)))))));

function entry(model, report) {
  return h("article", { class: "model", "aria-label": model.name },
    h("div", {}, h("h2", {}, model.name), h("p", { class: "dim" }, model.id === model.name ? model.provider : `${model.provider}, ${model.id}`),
      h("div", { class: "caps" }, model.agents.map((a) => h("span", { class: `chip ${["fast", "second"].includes(a.agent) ? "simple" : "hard"}` }, a.default ? a.agent : `${a.agent}, alternative`)), capabilities(model))),
    h("dl", {}, h("dt", {}, "Price"), h("dd", {}, price(model.price)), h("dt", {}, "Context"), h("dd", {}, model.context ? `${count(model.context)} tokens` : "unknown")),
    h("dl", {}, h("dt", {}, h("abbr", { title: "Closed: requests are sent. Open: after several failures in a row, none is sent for a while." }, "Circuit breaker")), h("dd", {}, breaker(report.breakers[model.provider], model)), Object.keys(model.scores).length > 0 && [h("dt", {}, "Scores"), h("dd", {}, Object.entries(model.scores).map(([expert, score]) => `${expert} ${percent(score)}`).join(", "))]),
    h("div", {}, alignment(model, report)));
}

const capabilities = (model) => CAPABILITIES.filter(([name]) => model[name]).map(([, text]) => h("span", { class: "chip plain" }, text));

function price(given) {
  if (given === null) return "unknown";
  if (!given.input && !given.output) return "free";
  return [`${rate(given.input)} in, ${rate(given.output)} out`, h("br"), h("span", { class: "dim" }, `${rate(given.cached)} cached`)];
}

function breaker(state, model) {
  if (!state) return h("span", { class: "dim" }, model.usable ? "not needed yet" : "no key");
  const [tone, name] = BREAKERS[state.state] ?? ["", state.state];
  return [h("span", { class: `chip ${tone}` }, name), state.failures > 0 && h("p", { class: "dim" }, `${count(state.failures)} failures in a row${state.retry_s ? `, next try in ${seconds(state.retry_s)}` : ""}`)];
}

/** μ and σ as calibrated, and how far the running figures have moved from them. */
function alignment(model, report) {
  if (!model.logprobs) return h("p", { class: "dim" }, "No log-probabilities, so no free energy to align.");
  if (!model.statistics.length) return h("p", { class: "dim" }, "Not calibrated: odar calibrate measures how often this model is right, and what is usual for its answers.");
  const running = model.drift.length ? drift(model.drift) : null;
  const used = model.statistics.some((row) => row.in_use);
  return [
    h("table", { "aria-label": `Alignment of ${model.name}` }, h("thead", {}, h("tr", {}, ["Step", "μ", "σ", "n", "skill", ""].map((name, i) => h("th", { class: i && i < 5 ? "r" : null }, name)))),
      h("tbody", {}, model.statistics.map((row) => h("tr", { class: row.in_use ? null : "dim" }, h("td", {}, row.step ?? "other"), h("td", { class: "r" }, fixed(row.mean, 4)), h("td", { class: "r" }, fixed(row.deviation, 4)), h("td", { class: "r" }, count(row.count)), h("td", { class: "r" }, fixed(row.skill)), h("td", {}, row.in_use ? h("span", { class: "chip good" }, "in use") : ""))))),
    !used && h("p", { class: "dim" }, "Calibrated for other prompts or settings than this server's: not used here."),
    running ?? h("p", { class: "dim" }, "No drift figures yet.")];
}

/** What has been served since, beside what was calibrated; a field that the engine does not report is a dash. */
function drift(rows) {
  const head = [["Served"], ["n", "answers"], ["μ", "mean of their free energy"], ["σ", "its standard deviation"], ["z", "distance from the calibrated mean, in standard errors"], [""]];
  return h("table", { "aria-label": "Drift" }, h("thead", {}, h("tr", {}, head.map(([name, title], i) => h("th", { class: i && i < 5 ? "r" : null }, title ? h("abbr", { title }, name) : name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, (row.step ?? "all").slice(0, 8)), h("td", { class: "r" }, row.count === undefined ? "–" : count(Math.round(row.count))),
      h("td", { class: "r" }, fixed(row.mean, 4)), h("td", { class: "r" }, fixed(row.deviation, 4)), h("td", { class: "r" }, num(row.drift_z ?? null) === null ? "–" : signed(row.drift_z)),
      h("td", {}, standing(row))))));
}

/** Whether the served energies still look like the calibrated ones; with too few of them, nothing is said. */
function standing(row) {
  if (row.drifting) return h("span", { class: "chip warn" }, "drifting");
  return num(row.drift_z ?? null) === null ? h("span", { class: "dim" }, "too few") : h("span", { class: "chip good" }, "steady");
}
