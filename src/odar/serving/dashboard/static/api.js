// The server's JSON. The key lives in this tab's session storage and travels in a header, never in an address.

const STORED = "odar-key";
const ROOT = "/dashboard/api";

export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const key = {
  get: () => { try { return sessionStorage.getItem(STORED) ?? ""; } catch { return memory; } },
  set: (value) => {
    memory = value;
    try { value ? sessionStorage.setItem(STORED, value) : sessionStorage.removeItem(STORED); } catch { /* this tab's memory will do */ }
  },
};
let memory = "";

/** Ask the server; raises ApiError with its own words. */
export async function call(path, { params = {}, body, signal } = {}) {
  const response = await send(path, { params, body, signal });
  return response.json();
}

export async function send(path, { params = {}, body, signal } = {}) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(address(path, params), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Is odar serve still running?", "offline");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

/** The address with those parameters that say anything. */
export function address(path, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return (path.startsWith("/v1/") ? path : ROOT + path) + (query ? `?${query}` : "");
}

async function failure(response) {
  let error = {};
  try { error = (await response.json()).error ?? {}; } catch { /* no JSON: the status must do */ }
  return new ApiError(response.status, error.message ?? `The server answered ${response.status}.`, error.code);
}

export const api = {
  session: () => call("/session"),
  overview: (params, signal) => call("/overview", { params, signal }),
  traces: (params, signal) => call("/traces", { params, signal }),
  trace: (id) => call(`/traces/${encodeURIComponent(id)}`),
  models: () => call("/models"),
  observation: (params) => call("/observation", { params }),
  /** Answer a question; `odar` in the reply has its whole trace. */
  ask: async (question, limits, signal) => {
    const body = { model: "odar", messages: [{ role: "user", content: question }], odar: { ...limits, explain: true } };
    const { odar } = await call("/v1/chat/completions", { body, signal });
    return { id: odar.trace_id, document: odar.explanation, story: odar.story };
  },
  feedback: (id, correct) => call("/v1/feedback", { body: { trace_id: id, correct } }),
};
