// Start, routes and keys. The parts do not know each other; what one needs of another goes through here.

import { getKey, ifThere, json, onKeyNeeded, setKey } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { byId, download, h, icon, iconButton, mark, toast, visible } from "./dom.js";
import { Inside } from "./inside.js";
import { Live } from "./live.js";
import { nextTheme, openSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import * as store from "./store.js";

const MODEL = "tetrad.model";
let model = "";
/** @type {Record<string, any>} what a request that names no settings gets */
let defaults = {};

const chat = new Chat({
  model: () => model,
  changed: () => (sidebar.render(), showTitle()),
  busy: (on) => (composer.setBusy(on), byId("brand").classList.toggle("busy", on)),
});
const composer = new Composer({ send: (text, files) => chat.send(text, files), stop: () => chat.stop() });
const sidebar = new Sidebar({
  current: () => (view() === "chat" ? chat.head?.id : undefined),
  gone: (id) => id === chat.head?.id && go("#/"),
  renamed: async () => (await chat.reload(), sidebar.render(), showTitle()),
});
const live = new Live(() => model);
const inside = new Inside(() => model);

// -- routes ----------------------------------------------------------------------------------------

const VIEWS = { chat: "chat-view", live: "live-view", inside: "inside-view" };
const TITLES = { live: "Live", inside: "Inside" };
const view = () => location.hash.match(/^#\/(live|inside)$/)?.[1] ?? "chat";
const go = (hash) => (location.hash === hash ? route() : (location.hash = hash));

async function route() {
  const name = view();
  for (const [key, id] of Object.entries(VIEWS)) byId(id).hidden = key !== name;
  for (const key of ["live", "inside"]) byId(`to-${key}`).toggleAttribute("aria-current", key === name);
  live.stop();
  if (name === "live") live.start();
  else if (name === "inside") inside.start();
  else await openConversation(location.hash.match(/^#\/c\/(\w+)$/)?.[1] ?? "");
  openSidebar(false);
  showTitle();
  sidebar.render();
}

/** The draft of each conversation waits for it as long as the tab is open. */
async function openConversation(id) {
  if (chat.head && chat.head.id === id) return;
  sessionStorage.setItem(`tetrad.draft.${chat.head?.id ?? ""}`, composer.box.value);
  if (!(await chat.open(id))) (toast("This conversation is not in this browser."), go("#/"));
  composer.set(sessionStorage.getItem(`tetrad.draft.${id}`) ?? "");
  if (matchMedia("(hover: hover)").matches) composer.box.focus(); // elsewhere a keyboard would pop up
}

function showTitle() {
  const title = TITLES[view()] ?? visible(chat.head?.title ?? "New conversation");
  byId("title").textContent = title;
  document.title = chat.head || view() !== "chat" ? `${title} · Tetrad` : "Tetrad";
}

// -- what stands around ----------------------------------------------------------------------------

function build() {
  byId("brand").prepend(mark());
  byId("new").prepend(icon("add"));
  byId("search-box").prepend(icon("search"));
  byId("to-live").prepend(icon("live"));
  byId("to-inside").prepend(icon("inside"));
  byId("jump").prepend(icon("down"));
  byId("bar").prepend(
    iconButton("menu", "Conversations", () => openSidebar(true), { id: "menu", "aria-controls": "sidebar" }),
  );
  byId("tools").append(
    iconButton("settings", "Settings", changeSettings),
    iconButton("theme", "Theme: system, light, dark", () => toast(`Theme: ${nextTheme()}`)),
    iconButton("export", "Export all conversations", async () =>
      download("conversations.json", await store.exported()),
    ),
    iconButton("import", "Import conversations", () => byId("import-file").click()),
  );
  byId("new").addEventListener("click", () => go("#/"));
  byId("shade").addEventListener("click", () => openSidebar(false));
  byId("skip").addEventListener(
    "click",
    (event) => (event.preventDefault(), byId(view() === "chat" ? "prompt" : VIEWS[view()]).focus()),
  );
}

const isNarrow = matchMedia("(max-width: 760px)");

/** On narrow screens the list lies over the page, and can be reached only while it is open. */
function openSidebar(on) {
  const isOver = isNarrow.matches && on;
  document.body.classList.toggle("sidebar-open", isOver);
  byId("sidebar").inert = isNarrow.matches && !on;
  byId("main").inert = isOver;
  if (isOver) byId("search").focus();
}

async function changeSettings() {
  const system = await openSettings(defaults, chat.head?.system ?? "");
  if (!chat.head || chat.head.system === system) return;
  chat.head.system = system;
  await store.patchConversation(chat.head.id, { system });
}

/** Asks for a key once, however many requests want one. */
let asking = null;
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    byId("key").value = getKey();
    dialog.returnValue = "";
    dialog.showModal();
    dialog.onclose = () => {
      asking = null;
      if (dialog.returnValue === "ok") setKey(byId("key").value.trim());
      resolve(dialog.returnValue === "ok" && Boolean(getKey()));
    };
  });
  return asking;
}

async function loadModels() {
  const names = (await json("v1/models")).data.map((one) => String(one.id));
  const kept = localStorage.getItem(MODEL) ?? "";
  model = names.includes(kept) ? kept : (names[0] ?? "");
  byId("model").replaceChildren(names.length > 1 ? picker(names) : h("span", { title: model }, visible(model)));
  defaults = (await ifThere("props"))?.default_generation_settings?.params ?? {};
}

function picker(names) {
  const choose = (event) => (
    localStorage.setItem(MODEL, (model = event.target.value)),
    view() === "inside" && inside.start()
  );
  return h(
    "select",
    { "aria-label": "Model", onchange: choose },
    ...names.map((name) => h("option", { value: name, selected: name === model }, visible(name))),
  );
}

/** Until the server is there, and again when it comes back. */
async function connect() {
  try {
    await loadModels();
    document.body.classList.remove("offline");
  } catch (error) {
    document.body.classList.add("offline");
    byId("model").replaceChildren(h("span", {}, error.title ?? "The server did not answer"));
    if (error.status !== 401) setTimeout(connect, 3000);
  }
}

// -- keys ------------------------------------------------------------------------------------------

function key(event) {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (document.body.classList.contains("sidebar-open")) (openSidebar(false), byId("menu").focus());
    else chat.stop();
  }
  if (!(event.ctrlKey || event.metaKey)) return;
  const name = event.key.toLowerCase();
  if (name === "k" && !event.shiftKey) (event.preventDefault(), openSidebar(true), byId("search").select());
  if (name === "o" && event.shiftKey) (event.preventDefault(), go("#/"));
}

build();
onKeyNeeded(askForKey);
addEventListener("hashchange", route);
addEventListener("keydown", key);
isNarrow.addEventListener("change", () => openSidebar(false));
store.onForeignChange(async (id) => id === chat.head?.id && (await chat.reload(), showTitle()));
addEventListener(
  "storage",
  (event) =>
    event.key === "tetrad.theme" &&
    (event.newValue
      ? (document.documentElement.dataset.theme = event.newValue)
      : delete document.documentElement.dataset.theme),
);
connect();
route();
