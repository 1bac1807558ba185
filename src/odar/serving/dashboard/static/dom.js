// Elements from code. Text is always a text node: nothing in the dashboard ever parses a string as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: h("p", {class: "note"}, "text", child, null). */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else if (name === "style") setStyle(node, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...flat(children));
  return node;
}

/** Through the CSSOM, which the content security policy allows; a style attribute it would not. */
export function setStyle(node, properties) {
  for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
}

/** Children as a list; every string in it made safe to look at, whoever wrote it. */
const flat = (children) => children.flat(Infinity)
  .filter((child) => child !== null && child !== undefined && child !== false)
  .map((child) => (typeof child === "string" ? visible(child) : child));

/** Put these in place of what an element holds. */
export function fill(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

// Bidirectional controls can make a text read as another one; zero-width, tag and control characters hide in it.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

/** A text with every character in it that would not show, or would move others, written out. */
export const visible = (text) =>
  text.replace(HIDDEN, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

const PIECE = 20_000;

/** A text of any length: the first piece of it, and a button for more. */
export function longText(text, className = "prose") {
  const box = h("div", { class: className, dir: "auto" });
  const node = document.createTextNode("");
  const more = h("button", { type: "button", class: "quiet more", onclick: () => show(shown * 4) });
  let shown = 0;
  function show(count) {
    shown = Math.min(count, text.length);
    node.data = visible(text.slice(0, shown));
    more.hidden = shown >= text.length;
    more.textContent = `Show more of ${text.length.toLocaleString("en")} characters`;
  }
  show(PIECE);
  return more.hidden ? fill(box, node) : h("div", {}, fill(box, node), more);
}

/** Draws again whenever the width changes: draw(width) returns an element. */
export function responsive(draw, attributes = {}) {
  const box = h("div", { class: "chart", ...attributes });
  let last = 0;
  const observer = new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width && width !== last) fill(box, draw((last = width)));
  });
  observer.observe(box);
  return box;
}

let counter = 0;
/** An id that nothing else has. */
export const fresh = (prefix) => `${prefix}-${++counter}`;
