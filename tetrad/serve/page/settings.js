// Settings: how answers are sampled, the system prompt, the theme. An empty field is not sent, so the
// server's own default holds; what that is stands in the field in grey.

import { byId, h } from "./dom.js";

const KEY = "tetrad.settings";

// name of the request, label, step, least, most, what it does
const NUMBERS = [
  ["temperature", "Temperature", 0.05, 0, 5, "0 always takes the likeliest token"],
  ["top_p", "Top p", 0.01, 0, 1, "tokens that together have this probability"],
  ["top_k", "Top k", 1, 0, 100000, "this many of the likeliest tokens"],
  ["min_p", "Min p", 0.01, 0, 1, "at least this share of the likeliest"],
  ["repeat_penalty", "Repeat penalty", 0.01, 0, 5, "1 is none"],
  ["presence_penalty", "Presence penalty", 0.1, -2, 2, ""],
  ["frequency_penalty", "Frequency penalty", 0.1, -2, 2, ""],
  ["max_tokens", "Longest answer", 1, 1, 1000000, "in tokens"],
  ["seed", "Seed", 1, -1, 4294967295, "the same seed gives the same answer"],
];
// What llama.cpp, and we after it, call them among the defaults.
const ALIASES = { max_tokens: "n_predict" };

/** As kept: text by name. @returns {Record<string, string>} */
export function settings() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return {};
  }
}

const keep = (values) => localStorage.setItem(KEY, JSON.stringify(values));

/** The fields of a request. */
export function requestFields() {
  const kept = settings();
  const filled = NUMBERS.filter(([name]) => kept[name] && Number.isFinite(Number(kept[name])));
  return { ...Object.fromEntries(filled.map(([name]) => [name, Number(kept[name])])), ...extraFields(kept.extra) };
}

function extraFields(text) {
  try {
    const found = JSON.parse(text || "{}");
    return found && typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

export const lastSystem = () => settings().system ?? "";

function field([name, label, step, min, max, hint], defaults) {
  const standard = defaults[name] ?? defaults[ALIASES[name]];
  const shown = typeof standard === "number" && !(standard < 0) ? String(Number(standard.toPrecision(6))) : "default";
  const input = h("input", { name, type: "number", step, min, max, placeholder: shown, inputmode: "decimal" });
  return h("label.field", {}, h("span", {}, label), input, hint && h("small", {}, hint));
}

function area(name, label, hint, placeholder) {
  return h(
    "label.field.wide",
    {},
    h("span", {}, label),
    h("textarea", { name, rows: 3, placeholder, dir: "auto" }),
    h("small", {}, hint),
  );
}

/**
 * Opens the dialog; resolves when it closes, with the system prompt that is now wanted.
 * @param {Record<string, any>} defaults the server's
 * @param {string} system of the conversation that is open
 */
export function openSettings(defaults, system) {
  const dialog = byId("settings");
  byId("fields").replaceChildren(
    area("system", "System prompt", "Of this conversation; new ones begin with it.", "You are a helpful assistant."),
    ...NUMBERS.map((row) => field(row, defaults)),
    area("extra", "More fields of the request", "JSON, for example tools or a response_format.", '{"stop": ["END"]}'),
  );
  const inputs = [...byId("fields").querySelectorAll("input, textarea")];
  const kept = { ...settings(), system };
  inputs.forEach((input) => (input.value = kept[input.name] ?? ""));
  const extra = inputs.find((input) => input.name === "extra");
  extra.oninput = () => extra.setCustomValidity(extraFields(extra.value) ? "" : "This is not a JSON object.");
  byId("reset").onclick = () =>
    inputs.forEach((input) => input.name !== "system" && ((input.value = ""), input.setCustomValidity("")));
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      const values = Object.fromEntries(
        inputs.filter((input) => input.value && input.validity.valid).map((input) => [input.name, input.value]),
      );
      keep(values);
      resolve(values.system ?? "");
    };
  });
}

/** System, light, dark, and round again. */
export function nextTheme() {
  const order = ["", "light", "dark"];
  const root = document.documentElement;
  const next = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
  if (next) ((root.dataset.theme = next), localStorage.setItem("tetrad.theme", next));
  else (delete root.dataset.theme, localStorage.removeItem("tetrad.theme"));
  return next || "system";
}
