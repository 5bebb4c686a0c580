// One message of the thread: text, thinking, tool calls, files, an error, and what can be done with it.

import { brief, copy, h, icon, iconButton, mark, quantity, visible } from "./dom.js";
import { MarkdownView } from "./markdown.js";

/**
 * @typedef {import("./store.js").Message} Message
 * @typedef {{
 *   edit(message: Message, text: string): void, again(message: Message): void, remove(message: Message): void,
 *   turn(message: Message, by: number): void, result(message: Message, call: string, text: string): void,
 * }} Actions what the thread does for its messages
 */

const NAMES = { user: "You", assistant: "Assistant", tool: "Tool result" };

export class MessageView {
  /** @param {Message} message @param {Actions} actions */
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.parts = h("div.parts");
    this.foot = h("div.message-foot");
    this.body = h("div.prose", { dir: "auto" });
    this.markdown = new MarkdownView(this.body);
    this.element = h(
      `article.message.${message.role}`,
      { "data-id": message.id, "aria-label": NAMES[message.role] },
      this.parts,
      this.foot,
    );
    this.build();
  }

  /** The parts in their order; those of an answer fill up while it streams. */
  build() {
    const { message } = this;
    this.files = h(
      "ul.chips",
      { "aria-label": "Attached files", hidden: !message.files?.length },
      ...(message.files ?? []).map(fileChip),
    );
    this.thoughtTitle = h("span");
    this.thoughts = h("div.thoughts-text", { dir: "auto" });
    this.thinking = h(
      "details.thoughts",
      { hidden: true },
      h("summary", {}, icon("right"), this.thoughtTitle),
      this.thoughts,
    );
    this.calls = h("div.calls");
    this.problem = h("div.problem", { hidden: true });
    this.waiting = h("div.waiting", { hidden: true }, mark("counting"), h("span.unseen", {}, "Waiting for the answer"));
    this.parts.replaceChildren(this.files, this.thinking, this.body, this.calls, this.waiting, this.problem);
  }

  /**
   * Shows the message as it is now.
   * @param {Message} message
   * @param {{place: number, count: number}} branch which of how many
   */
  update(message, branch) {
    this.message = message;
    this.branch = branch;
    const isOpen = message.state === "streaming";
    this.element.setAttribute("aria-busy", String(isOpen));
    this.showText();
    this.showCalls();
    this.showProblem();
    this.showFoot(isOpen);
  }

  /** What changes with every token. */
  showText() {
    const { message } = this;
    if (message.role === "assistant") this.markdown.update(message.content);
    else if (this.body.textContent !== visible(message.content)) this.body.textContent = visible(message.content);
    this.body.hidden = !message.content;
    this.waiting.hidden = message.state !== "streaming" || Boolean(message.content);
    this.thinking.hidden = !message.reasoning;
    if (!message.reasoning) return;
    this.thoughts.textContent = visible(message.reasoning);
    this.thoughtTitle.textContent = message.thought ? `Thought for ${brief(message.thought)}` : "Thinking";
  }

  showCalls() {
    const calls = this.message.calls ?? [];
    calls.forEach((call, i) => {
      const card = this.calls.children[i] ?? this.calls.appendChild(this.callCard(call));
      card.querySelector("h3").textContent = visible(call.name);
      card.querySelector("pre").textContent = visible(pretty(call.arguments));
    });
  }

  /** A call of a tool, and a place for what it gave: the page itself runs nothing. */
  callCard(call) {
    const result = h("textarea", {
      rows: 2,
      placeholder: "What did it return?",
      "aria-label": `Result of ${call.name}`,
    });
    const send = h(
      "button.plain",
      { type: "button", onclick: () => this.actions.result(this.message, call.id, result.value) },
      "Send the result",
    );
    return h(
      "section.call",
      {},
      h("header", {}, icon("tool"), h("h3")),
      h("pre", { tabindex: 0 }),
      h("div.call-result", {}, result, send),
    );
  }

  showProblem() {
    const { error, state } = this.message;
    this.problem.hidden = !error;
    this.element.classList.toggle("failed", state === "error");
    if (!error) return;
    const again = h("button.plain", { type: "button", onclick: () => this.actions.again(this.message) }, "Try again");
    this.problem.replaceChildren(h("strong", {}, error.title), h("p", {}, error.text), again);
    this.problem.setAttribute("role", "alert");
  }

  showFoot(isOpen) {
    const { message, actions, branch } = this;
    if (isOpen) return this.foot.replaceChildren(this.meta());
    const copyButton = iconButton("copy", "Copy", () => copy(message.content, copyButton));
    this.foot.replaceChildren(
      branch.count > 1 ? this.turner() : "",
      h(
        "div.actions",
        {},
        copyButton,
        message.role === "tool" ? "" : iconButton("edit", "Edit", () => this.edit()),
        message.role === "assistant" ? iconButton("redo", "Regenerate", () => actions.again(message)) : "",
        iconButton("trash", "Delete", () => actions.remove(message)),
      ),
      this.meta(),
    );
  }

  /** Between the branches: earlier questions and answers stay. */
  turner() {
    const { place, count } = this.branch;
    const turn = (by) => this.actions.turn(this.message, by);
    return h(
      "div.turner",
      { role: "group", "aria-label": "Versions" },
      iconButton("left", "Earlier version", () => turn(-1), { disabled: place === 1 }),
      h("span", {}, `${place} / ${count}`),
      iconButton("right", "Later version", () => turn(1), { disabled: place === count }),
    );
  }

  /** Tokens, their speed, and how it ended. */
  meta() {
    const { timings, state, role } = this.message;
    if (role !== "assistant") return "";
    const facts = [];
    if (timings?.predicted_n) facts.push(`${timings.predicted_n} tokens`);
    if (timings?.predicted_per_second) facts.push(`${quantity(timings.predicted_per_second)} tokens/s`);
    if (timings?.first) facts.push(`first after ${brief(timings.first)}`);
    if (state === "stopped") facts.push("stopped");
    if (state === "length") facts.push("ended at the limit");
    return h("span.meta", {}, facts.join(" · "));
  }

  edit() {
    const { message, actions } = this;
    const box = h("textarea", {
      rows: Math.min(12, message.content.split("\n").length + 1),
      "aria-label": "Edit the message",
      dir: "auto",
    });
    box.value = message.content;
    const close = () => (form.replaceWith(this.parts), (this.foot.hidden = false));
    const save = () => (close(), actions.edit(message, box.value));
    const label = message.role === "user" ? "Send" : "Save";
    const form = h(
      "form.edit",
      { onsubmit: (event) => (event.preventDefault(), save()) },
      box,
      h(
        "div.edit-row",
        {},
        h("button.plain", { type: "button", onclick: close }, "Cancel"),
        h("button.primary", {}, label),
      ),
    );
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") (event.stopPropagation(), close());
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) (event.preventDefault(), save());
    });
    this.parts.replaceWith(form);
    this.foot.hidden = true;
    box.focus();
  }
}

/** @param {import("./store.js").Attachment} file */
function fileChip(file) {
  const text = h("pre", { tabindex: 0 }, visible(file.text.slice(0, 20_000)));
  return h(
    "li.chip.file",
    {},
    h(
      "details",
      {},
      h(
        "summary",
        {},
        icon("attach"),
        h("span", {}, visible(file.name)),
        h("small", {}, quantity(file.text.length, "B")),
      ),
      text,
    ),
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
