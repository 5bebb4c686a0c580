// Requests to the server: the key, errors in kind words, answers as they stream.

/** An answer that is no answer: a title, what happened, and when to try again. */
export class ServerError extends Error {
  constructor(title, text, { status = 0, wait = 0 } = {}) {
    super(text);
    Object.assign(this, { title, text, status, wait });
  }
}

const KEY = "tetrad.key";
export const getKey = () => sessionStorage.getItem(KEY) ?? "";
export const setKey = (key) => sessionStorage.setItem(KEY, key);

/** @type {() => Promise<boolean>} asks the user for a key; true if one was typed */
let askForKey = async () => false;
export const onKeyNeeded = (ask) => (askForKey = ask);

/** Relative to the page, so that a prefix of a proxy stays in place. */
const address = (path) => new URL(path, document.baseURI).pathname + (path.match(/\?.*$/)?.[0] ?? "");

/** A response that is fine; anything else becomes a ServerError. */
async function request(path, options = {}) {
  const headers = { ...options.headers, ...(getKey() && { Authorization: `Bearer ${getKey()}` }) };
  let response;
  try {
    response = await fetch(address(path), { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : lost();
  }
  if (response.ok) return response;
  if (response.status === 401 && (await askForKey())) return request(path, options);
  throw await failure(response);
}

const lost = () =>
  new ServerError(
    "No connection to the server",
    "It may have stopped, or the network is down. What arrived so far is kept.",
  );

export const json = async (path) => (await request(path)).json();

/** What the server has to offer, or null where it does not know the question. */
export async function ifThere(path) {
  try {
    return await json(path);
  } catch (error) {
    if (error instanceof ServerError && [404, 405, 501].includes(error.status)) return null;
    throw error;
  }
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  return kindly(response.status, body?.error, Number(response.headers.get("Retry-After")) || 0);
}

const TITLES = {
  400: "The server cannot do this",
  401: "The server wants a key",
  403: "The server refused",
  404: "There is no such model here",
  413: "This is too long for the server",
  429: "The server is busy",
  503: "The server is not ready",
};

/** @param {number} status @param {any} error the body's, in OpenAI's form */
function kindly(status, error, wait = 0) {
  const said = String(error?.message ?? error ?? "") || `It answered with status ${status}.`;
  const isLong = /context|too long|too many tokens/i.test(`${error?.code} ${error?.type} ${said}`);
  if (status === 400 && isLong) {
    return new ServerError(
      "The conversation is longer than the model can read",
      `${said} Start a new one, or edit an earlier message.`,
      { status },
    );
  }
  const again = wait ? ` It suggests to try again in ${wait} s.` : "";
  return new ServerError(
    TITLES[status] ?? (status >= 500 ? "The server made a mistake" : "The server refused"),
    said + again,
    { status, wait },
  );
}

/**
 * Streams one answer.
 * @param {object} body of /v1/chat/completions
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<any>} chunks as the server sent them
 */
export async function* streamChat(body, signal) {
  const asked = { ...body, stream: true, stream_options: { include_usage: true }, timings_per_token: true };
  const response = await request("v1/chat/completions", {
    method: "POST",
    signal,
    body: JSON.stringify(asked),
    headers: { "Content-Type": "application/json" },
  });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw kindly(Number(chunk.error.code) || 500, chunk.error);
    yield chunk;
  }
  throw lost(); // a stream that is whole says so
}

/** The data of server-sent events; comments keep a connection open and say nothing. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = parts.pop() ?? "";
      for (const part of parts) {
        const lines = part.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
      }
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : lost();
  } finally {
    reader.cancel().catch(() => {}); // whoever stops reading hangs up
  }
}
