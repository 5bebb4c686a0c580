// The list of conversations: open, search, rename, delete, export, import.

import { byId, download, h, iconButton, toast, visible } from "./dom.js";
import * as store from "./store.js";

const DAY = 86_400_000;
const SEARCH_AFTER = 120; // ms after the last key

export class Sidebar {
  /** @param {{current(): string|undefined, gone(id: string): void}} host */
  constructor(host) {
    this.host = host;
    this.words = "";
    let timer = 0;
    byId("search").addEventListener("input", (event) => {
      clearTimeout(timer);
      timer = setTimeout(() => ((this.words = event.target.value.trim().toLowerCase()), this.render()), SEARCH_AFTER);
    });
    byId("search").addEventListener("keydown", (event) => this.searchKey(event));
    byId("conversations").addEventListener("keydown", (event) => this.listKey(event));
    byId("import-file").addEventListener(
      "change",
      (event) => (this.import(event.target.files[0]), (event.target.value = "")),
    );
    store.onForeignChange(() => this.render());
  }

  async render() {
    const heads = await this.found();
    const list = byId("conversations");
    const focused = document.activeElement?.closest("li")?.dataset.id;
    if (list.querySelector("input")) return; // a title is being typed
    list.replaceChildren(
      ...groups(heads).flatMap(([name, group]) => [
        h("li.group", { role: "presentation" }, name),
        ...group.map((head) => this.row(head)),
      ]),
    );
    if (!heads.length) list.append(h("li.none", {}, this.words ? "Nothing found" : "No conversations yet"));
    if (focused) list.querySelector(`[data-id="${focused}"] a`)?.focus();
  }

  /** Those whose title or messages hold all words. */
  async found() {
    const heads = await store.conversations();
    if (!this.words) return heads;
    const texts = new Map(heads.map((head) => [head.id, head.title.toLowerCase()]));
    for (const { conversation, content } of await store.allMessages())
      texts.set(conversation, `${texts.get(conversation)}\n${content.toLowerCase()}`);
    const words = this.words.split(/\s+/);
    return heads.filter((head) => words.every((word) => texts.get(head.id)?.includes(word)));
  }

  row(head) {
    const isCurrent = head.id === this.host.current();
    const title = visible(head.title);
    return h(
      "li.row",
      { "data-id": head.id },
      h("a", { href: `#/c/${head.id}`, "aria-current": isCurrent ? "page" : null, title, dir: "auto" }, title),
      h(
        "div.row-actions",
        {},
        iconButton("edit", `Rename ${title}`, () => this.rename(head)),
        iconButton("export", `Export ${title}`, async () =>
          download("conversation.json", await store.exported(head.id)),
        ),
        iconButton("trash", `Delete ${title}`, () => this.remove(head)),
      ),
    );
  }

  rename(head) {
    const row = byId("conversations").querySelector(`[data-id="${head.id}"]`);
    const box = h("input", { "aria-label": "New title", maxlength: 200, dir: "auto" });
    box.value = head.title;
    const close = async (isKept) => {
      box.onblur = null;
      row.replaceChildren();
      if (isKept && box.value.trim()) await store.patchConversation(head.id, { title: box.value.trim() });
      this.host.renamed();
    };
    box.onblur = () => close(true);
    box.onkeydown = (event) => {
      event.stopPropagation();
      if (event.key === "Enter" || event.key === "Escape") close(event.key === "Enter");
    };
    row.replaceChildren(box);
    box.select();
  }

  async remove(head) {
    const restore = await store.removeConversation(head.id);
    this.host.gone(head.id);
    await this.render();
    toast("Conversation deleted", { label: "Undo", run: async () => (await restore(), this.render()) });
  }

  async import(file) {
    try {
      const count = await store.imported(await file.text());
      toast(`${count} conversations imported`);
    } catch (error) {
      toast(`${file.name} was not imported: ${error.message}`);
    }
    this.render();
  }

  /** From the search box, Enter opens the first that was found; arrows walk the list. */
  searchKey(event) {
    const first = byId("conversations").querySelector("a");
    if (event.key === "Enter") first?.click();
    if (event.key === "ArrowDown") (event.preventDefault(), first?.focus());
    if (event.key === "Escape" && event.target.value) {
      event.stopPropagation();
      event.target.value = this.words = "";
      this.render();
    }
  }

  listKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...byId("conversations").querySelectorAll("a")];
    const next = links[links.indexOf(event.target.closest("li")?.querySelector("a")) + step];
    event.preventDefault();
    (next ?? byId("search")).focus();
  }
}

/** By age, in the order they come. */
function groups(heads) {
  const today = new Date().setHours(0, 0, 0, 0);
  const name = ({ updated }) =>
    updated >= today
      ? "Today"
      : updated >= today - DAY
        ? "Yesterday"
        : updated >= today - 7 * DAY
          ? "This week"
          : "Earlier";
  const found = new Map();
  heads.forEach((head) => found.set(name(head), [...(found.get(name(head)) ?? []), head]));
  return [...found];
}
