// Elements, icons and numbers as text. Nothing here, and nothing elsewhere, parses markup:
// whatever a model or a file says can only become text.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("button.quiet", {type: "button", onclick: f}, "Stop")`.
 * Properties that start with "on" are listeners, the others attributes; null and false leave one out.
 * @param {string} kind tag, then classes after dots
 * @param {Record<string, any>} [properties]
 * @param {...(Node|string|number|null|undefined|false)} children
 */
export function h(kind, properties = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  return fill(document.createElement(tag), classes, properties, children);
}

/** An element of SVG, made the same way. */
export function s(kind, properties = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  return fill(document.createElementNS(SVG, tag), classes, properties, children);
}

function fill(element, classes, properties, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The element with this id; all of them are in index.html. @returns {any} */
export const byId = (id) => document.getElementById(id);

// Outlines on a grid of 24 by 24.
const ICONS = {
  add: "M12 5v14M5 12h14",
  attach: "M20 11.5 12.3 19a4.8 4.8 0 0 1-6.8-6.8l8-8a3.2 3.2 0 0 1 4.6 4.6l-7.9 7.8a1.6 1.6 0 0 1-2.3-2.3l7.2-7.1",
  chat: "M4 5.5h16v11H9.5L4 20.5z",
  check: "m5 12.5 4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M12 5v14m-6-6 6 6 6-6",
  edit: "m4 20 .8-4L16 4.8a2.2 2.2 0 0 1 3.2 3.2L8 19.2z",
  export: "M12 15V4m-4 4 4-4 4 4M5 14v6h14v-6",
  import: "M12 4v11m-4-4 4 4 4-4M5 14v6h14v-6",
  inside: "m12 3 8.5 4.5L12 12 3.5 7.5zM3.5 12 12 16.5 20.5 12M3.5 16.5 12 21l8.5-4.5",
  left: "m14.5 6-6 6 6 6",
  live: "M3 12h4l3-8 4 16 3-8h4",
  menu: "M4 7h16M4 12h16M4 17h16",
  minus: "M5 12h14",
  redo: "M20 5v5h-5M19.5 10A8 8 0 1 0 20 14",
  right: "m9.5 6 6 6-6 6",
  search: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13M15.5 15.5 20 20",
  send: "M12 19V5m-6 6 6-6 6 6",
  settings: "M4 7h9m5 0h2M4 17h2m5 0h9M13 4.5v5h5v-5zM6 14.5v5h5v-5z",
  stop: "M7 7h10v10H7z",
  theme: "M12 3.5a8.5 8.5 0 1 0 0 17zM12 3.5a8.5 8.5 0 0 1 0 17",
  tool: "M14.5 5.5a4 4 0 0 0-4.300 5.800L4.5 17v2.5H7l5.700-5.700a4 4 0 0 0 5.800-4.300l-2.5 2.5-2.5-2.5 2.5-2.5z",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5m3-5v5",
};

/** A picture beside words, or within a labelled button; readers of the screen skip it. */
export function icon(name) {
  return s("svg.icon", { viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}

/** A button that shows an icon and says its name. */
export function iconButton(name, label, onclick, properties = {}) {
  return h(
    "button.icon-button",
    { type: "button", "aria-label": label, title: label, onclick, ...properties },
    icon(name),
  );
}

/** The mark: four bits, two by two. */
export function mark(kind = "") {
  const bit = (i) => s("rect.bit", { x: 1 + (i % 2) * 8, y: 1 + (i >> 1) * 8, width: 6, height: 6, rx: 1.5 });
  const picture = s("svg.mark", { viewBox: "0 0 16 16", "aria-hidden": "true" }, ...[0, 1, 2, 3].map(bit));
  if (kind) picture.classList.add(kind);
  return picture;
}

/** Copies text, and shows on the button for a moment that it did. */
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    return say("The browser did not allow copying.");
  }
  const before = button.querySelector(".icon");
  const after = icon("check");
  before.replaceWith(after);
  say("Copied");
  setTimeout(() => after.replaceWith(before), 1200);
}

/** Words for readers of the screen, without anything to see. */
export function say(text) {
  byId("status").textContent = text;
}

let toastTimer = 0;

/**
 * A line at the foot of the window, with at most one thing to do about it.
 * @param {string} text
 * @param {{label: string, run: () => void}} [action]
 */
export function toast(text, action) {
  const box = byId("toast");
  const close = () => box.replaceChildren();
  clearTimeout(toastTimer);
  const button = action && h("button.link", { type: "button", onclick: () => (close(), action.run()) }, action.label);
  box.replaceChildren(h("div.toast", {}, h("span", {}, text), button));
  toastTimer = setTimeout(close, action ? 8000 : 4000);
}

/** Hands the user a file. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Control characters, and characters that reorder text, written out: neither can hide or disguise anything.
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb]/g;

/** Text with everything invisible that steers made visible. @param {string} text */
export function visible(text) {
  return text.replace(/\r\n?/g, "\n").replace(STEERING, written);
}

function written(character) {
  const code = character.charCodeAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\\u${code.toString(16).padStart(4, "0")}`;
}

const UNITS = ["", "k", "M", "G", "T"];

/** Three digits and a unit: 1234567 -> "1.23 MB". */
export function quantity(value, unit = "", base = 1000) {
  let step = 0;
  while (value >= base && step < UNITS.length - 1) ((value /= base), step++);
  const digits = step === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[step]}${unit}`.trim();
}

/** @param {number} ns nanoseconds */
export function duration(ns) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(2)} ms`;
  return ns < 120e9
    ? `${(ns / 1e9).toFixed(1)} s`
    : ns < 7200e9
      ? `${Math.round(ns / 60e9)} min`
      : `${(ns / 3600e9).toFixed(1)} h`;
}

/** @param {number} ms milliseconds, as people feel them */
export const brief = (ms) => (ms < 1000 ? `${Math.ceil(ms)} ms` : duration(ms * 1e6));

export const percent = (share) => `${Math.round(100 * share)} %`;
