// Models: what each can do and costs, how its free energies are aligned and whether they drift, and its breaker.

import { api } from "./api.js";
import { fill, h } from "./dom.js";
import { count, fixed, money, percent, seconds, signed } from "./format.js";
import { failed } from "./parts.js";

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
    usable.length > 0 && group("Can be asked by name", usable, report),
    locked.length > 0 && group("In the catalogue, without a key for their provider", locked, report)));
}

const group = (title, models, report) => h("section", { "aria-label": title },
  h("h2", { class: "above" }, title), h("div", { class: "card catalogue" }, models.map((model) => entry(model, report))));

function entry(model, report) {
  return h("article", { class: "model", "aria-label": model.name },
    h("div", {}, h("h2", {}, model.name), h("p", { class: "dim" }, model.id === model.name ? model.provider : `${model.provider}, ${model.id}`),
      h("div", { class: "caps" }, model.agents.map((a) => h("span", { class: `chip ${a.agent === "fast" ? "simple" : "hard"}` }, a.default ? a.agent : `${a.agent}, alternative`)), capabilities(model))),
    h("dl", {}, h("dt", {}, "Price"), h("dd", {}, price(model.price)), h("dt", {}, "Context"), h("dd", {}, model.context ? `${count(model.context)} tokens` : "unknown")),
    h("dl", {}, h("dt", {}, "Breaker"), h("dd", {}, breaker(report.breakers[model.provider], model)), Object.keys(model.scores).length > 0 && [h("dt", {}, "Scores"), h("dd", {}, Object.entries(model.scores).map(([expert, score]) => `${expert} ${percent(score)}`).join(", "))]),
    h("div", {}, alignment(model, report)));
}

const capabilities = (model) => [["log-probs", model.logprobs], ["images", model.images], ["n samples", model.n]]
  .filter(([, can]) => can).map(([name]) => h("span", { class: "chip plain" }, name));

function price(given) {
  if (given === null) return "unknown";
  if (!given.input && !given.output) return "free";
  return [`${money(given.input)} in, ${money(given.output)} out`, h("br"), h("span", { class: "dim" }, `${money(given.cached)} cached`)];
}

function breaker(state, model) {
  if (!state) return h("span", { class: "dim" }, model.usable ? "not needed yet" : "no key");
  const [tone, name] = BREAKERS[state.state] ?? ["", state.state];
  return [h("span", { class: `chip ${tone}` }, name), state.failures > 0 && h("p", { class: "dim" }, `${count(state.failures)} failures in a row${state.retry_s ? `, next try in ${seconds(state.retry_s)}` : ""}`)];
}

/** μ and σ as calibrated, and how far the running figures have moved from them. */
function alignment(model, report) {
  if (!model.logprobs) return h("p", { class: "dim" }, "No log-probabilities, so no free energy to align.");
  const running = model.drift.length ? drift(model.drift) : null;
  if (!model.statistics.length) return [h("p", { class: "dim" }, "Uncalibrated: no μ and σ. Run odar calibrate."), running];
  const used = model.statistics.some((row) => row.in_use);
  return [
    h("table", { "aria-label": `Alignment of ${model.name}` }, h("thead", {}, h("tr", {}, ["Step", "μ", "σ", "n", "skill", ""].map((name, i) => h("th", { class: i && i < 5 ? "r" : null }, name)))),
      h("tbody", {}, model.statistics.map((row) => h("tr", { class: row.in_use ? null : "dim" }, h("td", {}, row.step ?? "other"), h("td", { class: "r" }, fixed(row.mean, 4)), h("td", { class: "r" }, fixed(row.deviation, 4)), h("td", { class: "r" }, count(row.count)), h("td", { class: "r" }, fixed(row.skill)), h("td", {}, row.in_use ? h("span", { class: "chip good" }, "in use") : ""))))),
    !used && h("p", { class: "dim" }, "Calibrated for other prompts or settings than this server's: not used here."),
    running ?? (report.drift_watched ? h("p", { class: "dim" }, "No drift figures yet.") : null)];
}

const pick = (row, ...names) => names.map((name) => row[name]).find((value) => value !== undefined) ?? null;

function drift(rows) {
  return h("table", { "aria-label": "Drift" }, h("thead", {}, h("tr", {}, ["Drift", "n", "running μ", "running σ", "z", ""].map((name, i) => h("th", { class: i && i < 5 ? "r" : null }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, pick(row, "step") ?? "all"), h("td", { class: "r" }, count(pick(row, "count", "n"))),
      h("td", { class: "r" }, fixed(pick(row, "running_mean", "mean"), 4)), h("td", { class: "r" }, fixed(pick(row, "running_deviation", "deviation"), 4)), h("td", { class: "r" }, pick(row, "drift_z", "z", "drift") === null ? "–" : signed(pick(row, "drift_z", "z", "drift"))),
      h("td", {}, pick(row, "drifting") ? h("span", { class: "chip warn" }, "drifting") : h("span", { class: "chip good" }, "steady"))))));
}
