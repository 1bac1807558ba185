// Numbers as a person reads them. Unknown is a word of its own, never a zero.

const LOCALE = "en";
export const UNKNOWN = "unknown";
export const DASH = "–";

/** A number that JSON could not hold comes as the string "inf", "-inf" or "nan". */
export function num(value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  const named = { inf: Infinity, "-inf": -Infinity, nan: NaN }[value];
  return named === undefined ? Number(value) : named;
}

export const count = (value) => (value === null || value === undefined ? UNKNOWN : value.toLocaleString(LOCALE));

export function fixed(value, digits = 2) {
  const number = num(value);
  if (number === null || Number.isNaN(number)) return DASH;
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  return number.toFixed(digits).replace("-", "−");
}

export const signed = (value, digits = 2) => (num(value) > 0 ? "+" : "") + fixed(value, digits);

export function money(value) {
  const usd = num(value);
  if (usd === null || !Number.isFinite(usd)) return UNKNOWN;
  if (usd === 0) return "$0";
  const size = Math.abs(usd);
  const digits = size >= 100 ? 0 : size >= 1 ? 2 : size >= 0.01 ? 4 : Math.min(9, 2 - Math.floor(Math.log10(size)));
  const text = size.toLocaleString(LOCALE, { minimumFractionDigits: size < 1 ? digits : Math.min(2, digits), maximumFractionDigits: digits });
  return `${usd < 0 ? "−" : ""}$${text}`;
}

/** A price per million tokens: as many digits as it has, at least two. */
export const rate = (usd) => (usd === 0 ? "$0" : `$${usd.toLocaleString(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 4 })}`);

export function seconds(value) {
  const s = num(value);
  if (s === null || !Number.isFinite(s)) return DASH;
  if (s < 0.0995) return `${(s * 1000).toFixed(s < 0.00995 ? 1 : 0)} ms`;
  if (s < 60) return `${s.toFixed(s < 9.95 ? 2 : 1)} s`;
  return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

export const percent = (share, digits = 0) =>
  share === null || share === undefined || !Number.isFinite(share) ? DASH : `${(100 * share).toFixed(digits)}%`;

const DAY = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric" });
const CLOCK = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const HOUR = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", hour12: false });

export const clock = (date) => CLOCK.format(date);
export const hour = (date) => HOUR.format(date);
export const day = (date) => DAY.format(date);

/** Today's times by the clock, others with their day. */
export function when(iso) {
  const date = new Date(iso);
  const today = new Date().toDateString() === date.toDateString();
  return today ? clock(date) : `${day(date)}, ${hour(date)}`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export const PATH_NAMES = { simple: "Simple", medium: "Medium", hard: "Hard", direct: "Direct", none: "No path" };
export const pathName = (path) => PATH_NAMES[path] ?? "No path";
