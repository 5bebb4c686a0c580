// Conversations, kept in the browser's IndexedDB. One record a message, each with the message it
// answers: a conversation is a tree, nothing is written over, and two tabs that write at once add two
// branches. Other tabs hear of every change by a BroadcastChannel.

/**
 * @typedef {{id: string, title: string, system: string, updated: number}} Conversation
 * @typedef {{name: string, text: string}} Attachment
 * @typedef {{id: string, name: string, arguments: string}} ToolCall
 * @typedef {{
 *   id: string, conversation: string, parent: string, at: number, role: "user"|"assistant"|"tool", content: string,
 *   reasoning?: string, thought?: number, files?: Attachment[], calls?: ToolCall[], call?: string, model?: string,
 *   state?: "streaming"|"stopped"|"length"|"error", error?: {title: string, text: string}, timings?: any, beat?: number,
 * }} Message
 */

const channel = new BroadcastChannel("tetrad");
/** @type {Set<(conversation: string) => void>} */
const listeners = new Set();
channel.onmessage = (event) => listeners.forEach((listener) => listener(event.data));

/** Calls `listener` with the id of a conversation that another tab changed. */
export const onForeignChange = (listener) => listeners.add(listener);

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** @type {Promise<IDBDatabase>|null} */
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("tetrad", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

const STORES = ["conversations", "messages"];

/** Runs `work` with both stores; resolves when everything is on disk. */
async function change(conversation, work) {
  const transaction = (await database()).transaction(STORES, "readwrite");
  work(...STORES.map((name) => transaction.objectStore(name)));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
  channel.postMessage(conversation);
}

const reading = async (name) => (await database()).transaction(name).objectStore(name);

/** Newest first. @returns {Promise<Conversation[]>} */
export async function conversations() {
  const all = await done((await reading("conversations")).getAll());
  return all.sort((a, b) => b.updated - a.updated);
}

/** @returns {Promise<Conversation|undefined>} */
export const conversation = async (id) => done((await reading("conversations")).get(id));

/** All branches, oldest first. @returns {Promise<Message[]>} */
export async function messages(id) {
  const found = await done((await reading("messages")).index("conversation").getAll(id));
  return found.sort((a, b) => a.at - b.at);
}

/** Every message there is, for search and export. @returns {Promise<Message[]>} */
export const allMessages = async () => done((await reading("messages")).getAll());

export const newId = () => crypto.getRandomValues(new Uint32Array(3)).reduce((text, n) => text + n.toString(36), "");

export const putConversation = (record) => change(record.id, (heads) => heads.put(record));

/** Changes some fields of a conversation and leaves those that another tab may have changed. */
export async function patchConversation(id, fields) {
  await change(id, (heads) => {
    heads.get(id).onsuccess = (event) => {
      if (event.target.result) heads.put({ ...event.target.result, ...fields });
    };
  });
}

/** Keeps a message, unless another tab has deleted its conversation. @param {Message} message */
export async function putMessage(message) {
  await change(message.conversation, (heads, all) => {
    heads.get(message.conversation).onsuccess = (event) => {
      if (event.target.result) all.put(message);
    };
  });
}

/** @param {Message[]} gone of one conversation */
export async function removeMessages(gone) {
  if (gone.length) await change(gone[0].conversation, (_, all) => gone.forEach((message) => all.delete(message.id)));
}

/** Removes a conversation and returns what brings it back. */
export async function removeConversation(id) {
  const head = await conversation(id);
  const all = await messages(id);
  await change(id, (heads, bodies) => {
    heads.delete(id);
    all.forEach((message) => bodies.delete(message.id));
  });
  return () => restore([head], all);
}

const restore = (heads, bodies) =>
  change("", (store, all) => {
    heads.forEach((head) => store.put(head));
    bodies.forEach((message) => all.put(message));
  });

/** Everything, or one conversation, as JSON. */
export async function exported(id = "") {
  const heads = (await conversations()).filter((head) => !id || head.id === id);
  const bodies = id ? await messages(id) : await allMessages();
  return JSON.stringify(
    { format: "tetrad-conversations", version: 1, conversations: heads, messages: bodies },
    null,
    1,
  );
}

const isText = (value) => typeof value === "string";
const isHead = (c) => c && [c.id, c.title, c.system].every(isText) && Number.isFinite(c.updated);
const isMessage = (m) =>
  m &&
  [m.id, m.conversation, m.parent, m.content].every(isText) &&
  Number.isFinite(m.at) &&
  ["user", "assistant", "tool"].includes(m.role);

/** The fields we know, of the types we expect: a file may come from anywhere. @returns {Message} */
function cleaned({ id, conversation, parent, at, role, content, reasoning, files, calls, call }) {
  const list = (value, ...fields) =>
    Array.isArray(value) ? value.filter((one) => one && fields.every((field) => isText(one[field]))) : undefined;
  return {
    id,
    conversation,
    parent,
    at,
    role,
    content,
    reasoning: isText(reasoning) ? reasoning : undefined,
    files: list(files, "name", "text"),
    calls: list(calls, "id", "name", "arguments"),
    call: isText(call) ? call : undefined,
  };
}

/** Takes what `exported` gave, beside what is there; the same conversation twice stays one. @returns {Promise<number>} how many */
export async function imported(text) {
  const data = JSON.parse(text);
  if (data?.format !== "tetrad-conversations") throw new Error("it was not exported here");
  if (!data.conversations?.every(isHead) || !data.messages?.every(isMessage))
    throw new Error("some records are damaged");
  await restore(data.conversations, data.messages.map(cleaned));
  return data.conversations.length;
}
