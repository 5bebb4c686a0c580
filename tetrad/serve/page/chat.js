// The thread: one conversation as a path through its tree of messages, and the answers that stream into it.

import { ServerError, streamChat } from "./api.js";
import { byId, h, mark, say, toast } from "./dom.js";
import { MessageView } from "./message.js";
import { lastSystem, requestFields } from "./settings.js";
import * as store from "./store.js";

/** @typedef {import("./store.js").Message} Message */

const KEEP_EVERY = 700; // ms: how often an answer that streams is written down
const STALE = 5000; // ms without a sign: the tab that streamed it is gone
const NEAR = 90; // px from the end that still count as reading along

const SUGGESTIONS = [
  ["Explain", "why the sky is blue, in two sentences"],
  ["Write", "a short poem about four bits"],
  ["Code", "a Python function that reverses the words of a line"],
  ["Compare", "bread and pasta in a small table"],
];

export class Chat {
  /** @param {{model(): string, changed(): void, busy(on: boolean): void}} host */
  constructor(host) {
    this.host = host;
    /** @type {import("./store.js").Conversation|null} */
    this.head = null;
    /** @type {Map<string, Message>} all branches */
    this.all = new Map();
    /** @type {Map<string, string>} parent -> the child that is shown */
    this.picks = new Map();
    /** @type {Map<string, MessageView>} */
    this.views = new Map();
    /** @type {Map<string, {message: Message, controller: AbortController}>} by conversation */
    this.streams = new Map();
    /** @type {Set<Message>} shown, and on their way to the disk */
    this.unsaved = new Set();
    this.writes = 0;
    this.later = 0;
    this.frame = 0;
    this.cost = 0; // ms that the last frame took
    this.follows = true;
    this.listen();
  }

  listen() {
    const scroll = byId("scroll");
    const isNear = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR;
    scroll.addEventListener("scroll", () => ((this.follows = isNear()), (byId("jump").hidden = this.follows)), {
      passive: true,
    });
    byId("jump").addEventListener("click", () => this.toEnd());
    store.onForeignChange((id) => id === this.head?.id && this.reload());
    addEventListener("pagehide", () => this.streams.forEach(({ controller }) => controller.abort()));
  }

  // -- which conversation --------------------------------------------------------------------------

  /** Shows a conversation; none is a new one, which is kept with its first message. */
  async open(id) {
    this.head = id ? ((await store.conversation(id)) ?? null) : null;
    this.picks.clear();
    this.views.clear();
    byId("thread").replaceChildren();
    await this.reload();
    this.toEnd();
    return Boolean(this.head) || !id;
  }

  async reload() {
    const id = this.head?.id;
    const writes = this.writes;
    const found = id ? await store.messages(id) : [];
    const head = id ? await store.conversation(id) : null;
    if (this.head?.id !== id) return; // another was opened meanwhile
    if (this.writes !== writes) return this.reload(); // what was read is older than what we wrote
    this.head = head ?? null;
    const ours = [...this.unsaved, ...[...this.streams.values()].map(({ message }) => message)].filter(
      (message) => head && message.conversation === id,
    );
    this.all = new Map([...found, ...ours].map((message) => [message.id, message]));
    this.render();
    clearTimeout(this.later);
    if (found.some((message) => message.state === "streaming")) this.later = setTimeout(() => this.render(), STALE);
  }

  // -- the tree ------------------------------------------------------------------------------------

  children(parent) {
    return [...this.all.values()].filter((message) => message.parent === parent);
  }

  /** The messages that are shown: at each fork the one picked, else the newest. @returns {Message[]} */
  path() {
    const path = [];
    for (let parent = ""; ; parent = path[path.length - 1].id) {
      const choices = this.children(parent);
      if (!choices.length || path.length > this.all.size) return path;
      path.push(choices.find((message) => message.id === this.picks.get(parent)) ?? choices[choices.length - 1]);
    }
  }

  below(message) {
    return [message, ...this.children(message.id).flatMap((child) => this.below(child))];
  }

  // -- what is seen --------------------------------------------------------------------------------

  render() {
    const path = this.path();
    const elements = path.map((message) => this.view(message).element);
    const thread = byId("thread");
    thread.setAttribute("aria-busy", String(!path.some((message) => message.state === "streaming")));
    if (!path.length) thread.replaceChildren(this.welcome());
    else if (
      elements.some((element, i) => thread.children[i] !== element) ||
      thread.children.length !== elements.length
    )
      thread.replaceChildren(...elements);
    this.host.busy(Boolean(this.stream));
    if (this.follows) this.toEnd();
  }

  get stream() {
    return this.streams.get(this.head?.id ?? "");
  }

  view(message) {
    const known = this.views.get(message.id) ?? new MessageView(message, this);
    this.views.set(message.id, known);
    const siblings = this.children(message.parent);
    const shown = this.isStale(message) ? { ...message, state: "stopped", error: CUT } : message;
    known.update(shown, { place: siblings.indexOf(message) + 1, count: siblings.length });
    return known;
  }

  /** An answer that somebody began and nobody carries on. */
  isStale(message) {
    const isOurs = this.stream?.message === message;
    return message.state === "streaming" && !isOurs && Date.now() - (message.beat ?? 0) > STALE;
  }

  welcome() {
    const ask = (text) => (
      (byId("prompt").value = text),
      byId("prompt").dispatchEvent(new Event("input")),
      byId("prompt").focus()
    );
    const cards = SUGGESTIONS.map(([verb, rest]) =>
      h(
        "button.bit-card",
        { type: "button", onclick: () => ask(`${verb} ${rest}.`) },
        h("strong", {}, verb),
        h("span", {}, rest),
      ),
    );
    return h(
      "div.welcome",
      {},
      mark(),
      h("h2", {}, "What shall we look into?"),
      h("p", {}, "Conversations stay in this browser."),
      h("div.bits", {}, ...cards),
    );
  }

  toEnd() {
    byId("scroll").scrollTop = byId("scroll").scrollHeight;
    this.follows = true;
    byId("jump").hidden = true;
  }

  /** Once a frame at most, however fast tokens come; where drawing takes long, most of the time is left to the user. */
  soon(message) {
    this.frame ||= setTimeout(
      () =>
        requestAnimationFrame(() => {
          this.frame = 0;
          const begun = performance.now();
          this.grow(message);
          this.cost = performance.now() - begun;
        }),
      this.cost > 20 ? 4 * this.cost : 0,
    );
  }

  grow(message) {
    const view = this.views.get(message.id);
    if (!view?.branch || message.conversation !== this.head?.id || message.state !== "streaming") return;
    view.update(message, view.branch);
    if (this.follows) this.toEnd();
  }

  // -- what messages and the composer ask for ------------------------------------------------------

  async send(text, files) {
    const parent = this.path().at(-1)?.id ?? "";
    await this.ensureHead(text || files[0].name);
    await this.answer(
      await this.add(this.make({ parent, role: "user", content: text, files: files.length ? files : undefined })),
    );
  }

  async ensureHead(text) {
    if (this.head) return;
    const title = text.split("\n")[0].slice(0, 60) || "Untitled";
    this.head = { id: store.newId(), title, system: lastSystem(), updated: Date.now() };
    await store.putConversation(this.head);
    history.replaceState(null, "", `#/c/${this.head.id}`);
    this.host.changed();
  }

  /** A message of this conversation. @returns {Message} */
  make(fields) {
    return { id: store.newId(), conversation: this.head.id, at: Date.now(), ...fields };
  }

  /** Adds a message and shows its branch. @param {Message} message */
  async add(message) {
    this.all.set(message.id, message);
    this.picks.set(message.parent, message.id);
    this.follows = true;
    this.unsaved.add(message);
    this.render();
    await this.write(store.putMessage(message));
    this.unsaved.delete(message);
    return message;
  }

  /** Waits for a change to be on disk; whatever was read meanwhile is old. */
  async write(change) {
    this.writes++;
    await change;
    this.writes++;
  }

  async edit(message, text) {
    const { parent, role, files, reasoning, calls } = message;
    if (this.stream) this.stop();
    const made = await this.add(this.make({ parent, role, content: text, files, reasoning, calls }));
    if (role === "user") await this.answer(made);
  }

  async again(message) {
    if (this.stream) this.stop();
    if (!message.content && message.error)
      (this.all.delete(message.id), await this.write(store.removeMessages([message])));
    const question = this.all.get(message.parent);
    if (question) await this.answer(question);
  }

  /** Removes a message and what follows it, until somebody wants it back. */
  async remove(message) {
    const gone = this.below(message);
    if (gone.includes(this.stream?.message)) this.stop();
    gone.forEach((one) => this.all.delete(one.id));
    this.render();
    await this.write(store.removeMessages(gone));
    const back = async () => (await Promise.all(gone.map(store.putMessage)), this.reload());
    toast(gone.length === 1 ? "Message deleted" : `${gone.length} messages deleted`, { label: "Undo", run: back });
  }

  turn(message, by) {
    const siblings = this.children(message.parent);
    this.picks.set(message.parent, siblings[siblings.indexOf(message) + by].id);
    this.follows = false;
    this.render();
  }

  /** What a tool returned; when all calls of the message have their results, the model goes on. */
  async result(message, call, text) {
    const path = this.path();
    const last = await this.add(this.make({ parent: path.at(-1).id, role: "tool", content: text, call }));
    const given = new Set(this.path().map((one) => one.call));
    if (message.calls.every((one) => given.has(one.id))) await this.answer(last);
  }

  stop() {
    this.stream?.controller.abort();
  }

  // -- an answer -----------------------------------------------------------------------------------

  /** @param {Message} question */
  async answer(question) {
    const id = question.conversation;
    const history = this.requestMessages(question);
    const model = this.host.model();
    const message = this.make({
      parent: question.id,
      role: "assistant",
      content: "",
      model,
      state: "streaming",
      beat: Date.now(),
    });
    const controller = new AbortController();
    this.streams.set(id, { message, controller });
    await this.add(message);
    store.patchConversation(id, { updated: Date.now() }).then(() => this.host.changed());
    const beat = setInterval(() => ((message.beat = Date.now()), store.putMessage({ ...message })), KEEP_EVERY);
    await this.receive({ ...(model && { model }), messages: history, ...requestFields() }, message, controller.signal);
    clearInterval(beat);
    if (this.streams.get(id)?.message === message) this.streams.delete(id);
    if (this.all.has(message.id) || this.head?.id !== id) await store.putMessage(message);
    this.finished(message);
  }

  async receive(body, message, signal) {
    const begun = performance.now();
    try {
      for await (const chunk of streamChat(body, signal)) {
        take(message, chunk, performance.now() - begun);
        this.soon(message);
      }
      if (message.state === "streaming") delete message.state;
    } catch (error) {
      fail(message, error);
    }
  }

  finished(message) {
    if (message.conversation === this.head?.id) this.render();
    const ends = { stopped: "The answer was stopped.", error: "There was a problem." };
    say(ends[message.state] ?? "The answer is complete.");
  }

  /** What the model is told: the messages that lead to the question. */
  requestMessages(question) {
    const path = [];
    for (let one = question; one; one = this.all.get(one.parent)) path.unshift(requestMessage(one));
    const system = this.head?.system.trim();
    return system ? [{ role: "system", content: system }, ...path] : path;
  }
}

const CUT = { title: "The answer was cut short", text: "The page that received it was closed." };

/** Adds a chunk of the stream to the message. */
function take(message, chunk, ms) {
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  const first = message.timings?.first ?? (delta.content || delta.reasoning_content ? ms : undefined);
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
  if (delta.content) message.content += delta.content;
  if (message.reasoning && !message.thought && (delta.content || delta.tool_calls || choice?.finish_reason))
    message.thought = ms - first;
  for (const call of delta.tool_calls ?? []) takeCall((message.calls ??= []), call);
  message.timings = { ...message.timings, ...measured(chunk, message.timings, ms, first), first };
  if (choice?.finish_reason === "length") message.state = "length";
}

/** The server's own figures where it gives them, else ours from the time between first and last. */
function measured(chunk, before, ms, first) {
  if (chunk.timings) return chunk.timings;
  const tokens = chunk.usage?.completion_tokens;
  if (!tokens || before?.predicted_n) return {};
  return {
    predicted_n: tokens,
    predicted_per_second: (1000 * Math.max(tokens - 1, 1)) / Math.max(ms - (first ?? 0), 1),
  };
}

function takeCall(calls, delta) {
  const call = (calls[delta.index ?? calls.length] ??= { id: "", name: "", arguments: "" });
  if (delta.id) call.id = delta.id;
  call.name += delta.function?.name ?? "";
  call.arguments += delta.function?.arguments ?? "";
}

function fail(message, error) {
  if (error.name === "AbortError") return void (message.state = "stopped");
  const known =
    error instanceof ServerError
      ? error
      : { title: "The answer could not be read", text: String(error.message ?? error) };
  message.state = "error";
  message.error = { title: known.title, text: known.text };
}

/** A message as the API has it; files go before the text, each in a fence that it cannot close. */
function requestMessage(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.call, content: message.content };
  const content = [...(message.files ?? []).map(fenced), message.content].filter(Boolean).join("\n\n");
  const calls = message.calls?.map(({ id, name, arguments: text }) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  }));
  return calls ? { role: message.role, content, tool_calls: calls } : { role: message.role, content };
}

function fenced({ name, text }) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  return `File ${JSON.stringify(name)}:\n${fence}\n${text}\n${fence}`;
}
