// The box to write in: text, attached files, send and stop.

import { byId, h, icon, iconButton, quantity, toast, visible } from "./dom.js";

const LARGEST = 512 * 1024; // bytes of a file; a model reads some hundred thousand letters at most
const MOST = 20; // files of a message

export class Composer {
  /** @param {{send(text: string, files: any[]): void, stop(): void}} actions */
  constructor(actions) {
    this.actions = actions;
    this.box = byId("prompt");
    /** @type {import("./store.js").Attachment[]} */
    this.files = [];
    this.busy = false;
    this.button = h("button.send", { type: "submit", "aria-label": "Send", title: "Send" }, icon("send"));
    byId("composer-row").append(
      iconButton("attach", "Attach files as text", () => byId("file").click()),
      this.button,
    );
    this.listen();
    this.refresh();
  }

  listen() {
    byId("composer").addEventListener("submit", (event) => (event.preventDefault(), this.submit()));
    byId("file").addEventListener(
      "change",
      (event) => (this.attach([...event.target.files]), (event.target.value = "")),
    );
    this.box.addEventListener("input", () => this.refresh());
    this.box.addEventListener(
      "paste",
      (event) =>
        event.clipboardData?.files.length && (event.preventDefault(), this.attach([...event.clipboardData.files])),
    );
    this.box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.busy) this.submit(); // Enter must not stop an answer by accident
    });
    this.listenForDrops();
  }

  listenForDrops() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => hasFiles(event) && (event.preventDefault(), (byId("drop").hidden = false)));
    addEventListener("dragleave", (event) => event.relatedTarget || (byId("drop").hidden = true));
    addEventListener("drop", (event) => {
      byId("drop").hidden = true;
      if (hasFiles(event)) (event.preventDefault(), this.attach([...event.dataTransfer.files]));
    });
  }

  submit() {
    if (this.busy) return this.actions.stop();
    const text = this.box.value.trim();
    if (!text && !this.files.length) return;
    const files = this.files;
    this.set("");
    this.actions.send(text, files);
  }

  /** The text of the box, without files; what an unsent draft was. */
  set(text) {
    this.box.value = text;
    this.files = [];
    this.refresh();
  }

  /** While an answer streams the button stops it. */
  setBusy(busy) {
    if (busy === this.busy) return;
    this.busy = busy;
    const label = busy ? "Stop" : "Send";
    this.button.setAttribute("aria-label", label);
    this.button.title = busy ? "Stop (Esc)" : label;
    this.button.replaceChildren(icon(busy ? "stop" : "send"));
    this.refresh();
  }

  refresh() {
    this.button.disabled = !this.busy && !this.box.value.trim() && !this.files.length;
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
    byId("chips").replaceChildren(...this.files.map((file) => this.chip(file)));
  }

  chip(file) {
    const drop = () => ((this.files = this.files.filter((other) => other !== file)), this.refresh(), this.box.focus());
    return h(
      "li.chip",
      {},
      icon("attach"),
      h("span", {}, visible(file.name)),
      h("small", {}, quantity(file.text.length, "B")),
      iconButton("close", `Remove ${file.name}`, drop),
    );
  }

  /** @param {File[]} files a list of our own: that of an event is emptied behind our back */
  async attach(files) {
    for (const file of files) {
      const problem = await this.read(file);
      if (problem) toast(`${file.name}: ${problem}`);
    }
    this.refresh();
    this.box.focus();
  }

  /** Takes a file as text, or says why not. @param {File} file */
  async read(file) {
    if (this.files.length >= MOST) return `at most ${MOST} files go with a message`;
    if (file.size > LARGEST) return `too large, ${quantity(file.size, "B")}; the limit is ${quantity(LARGEST, "B")}`;
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) return "this is not text";
      this.files.push({ name: file.name, text });
    } catch {
      return "this is not text in UTF-8";
    }
    return "";
  }
}
