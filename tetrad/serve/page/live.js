// The engine as it runs: tokens a second, share of the memory bandwidth, queue, slots. Asks /live
// every second while it is looked at, and makes rates of totals.

import { ifThere } from "./api.js";
import { byId, duration, h, percent, quantity, s } from "./dom.js";

const EVERY = 1000; // ms
const [FEWEST, SAMPLES] = [30, 90]; // that a graph is wide
const [WIDTH, HEIGHT] = [260, 56];

export class Live {
  /** @param {() => string} model the name of the one that is chosen */
  constructor(model) {
    this.model = model;
    this.timer = 0;
    /** @type {{at: number, answered: number, read: number, share: number, waiting: number}[]} */
    this.samples = [];
    this.before = null;
  }

  start() {
    this.stop();
    this.samples = [];
    this.before = null;
    this.draw(h("p.quiet", {}, "Asking the server"));
    this.tick();
    this.timer = setInterval(() => document.hidden || this.tick(), EVERY);
  }

  stop() {
    clearInterval(this.timer);
  }

  async tick() {
    try {
      const data = await ifThere(`live?model=${encodeURIComponent(this.model())}`);
      if (!data) return this.end("This server has no live view.");
      this.sample(data);
      this.draw(...this.view(data));
    } catch (error) {
      this.draw(h("p.quiet", {}, error.title ?? "The server did not answer", ". Asking again every second."));
    }
  }

  end(text) {
    this.stop();
    this.draw(h("p.quiet", {}, text));
  }

  draw(...nodes) {
    byId("live-view").replaceChildren(h("div.panel-inner", {}, ...nodes));
  }

  /** @param {any} data as /live gave it */
  sample(data) {
    const now = { at: performance.now(), ...data.totals };
    const seconds = this.before ? (now.at - this.before.at) / 1000 : 0;
    const rate = (name) => (seconds ? Math.max(0, now[name] - this.before[name]) / seconds : 0);
    const { rate: moved, roof } = data.memory ?? {};
    const share = roof ? moved / roof : 0;
    this.samples.push({
      at: now.at,
      answered: rate("predicted_tokens"),
      read: rate("prompt_tokens"),
      share,
      waiting: data.queue.waiting,
    });
    this.samples = this.samples.slice(-SAMPLES);
    this.before = now;
  }

  view(data) {
    const last = this.samples.at(-1);
    const busy = data.slots.filter((slot) => slot.state !== "idle").length;
    const { rate, roof } = data.memory ?? {};
    const bandwidth = roof ? `${quantity(rate, "B/s")} of ${quantity(roof, "B/s")}` : "not measured on this machine";
    return [
      h(
        "div.cards",
        {},
        this.card("answered", "Tokens written", quantity(last.answered), "a second"),
        this.card("read", "Tokens read", quantity(last.read), "a second"),
        this.card("share", "Memory bandwidth", roof ? percent(last.share) : "–", bandwidth, 1),
        this.card("waiting", "Waiting", String(data.queue.waiting), `of at most ${data.queue.limit}`),
      ),
      h("h2", {}, "Slots", h("small", {}, `${busy} of ${data.slots.length} at work`)),
      h("div.slots", {}, ...data.slots.map(slotCard)),
      h("h2", {}, "Since the start", h("small", {}, duration(data.uptime * 1e9))),
      h("dl.totals", {}, ...totals(data).map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))),
    ];
  }

  /** A figure with its last minute and a half. */
  card(name, title, figure, hint, most = 0) {
    const values = this.samples.map((sample) => sample[name]);
    return h(
      `section.card.${name}`,
      {},
      h("h3", {}, title),
      h("p.figure", {}, figure, h("small", {}, hint)),
      sparkline(values, most, title),
    );
  }
}

/** Newest at the right edge; a value that was never above `most` is drawn against it. */
function sparkline(values, most, title) {
  const top = Math.max(most, ...values, 1e-9);
  const step = WIDTH / (Math.max(FEWEST, values.length) - 1);
  const point = (value, i) =>
    `${(WIDTH - (values.length - 1 - i) * step).toFixed(1)} ${(HEIGHT - 2 - (HEIGHT - 6) * (value / top)).toFixed(1)}`;
  const line = values.map(point).join("L");
  const left = WIDTH - (values.length - 1) * step;
  return s(
    "svg.spark",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${title}, the last ${values.length} seconds`,
    },
    s("path.area", { d: `M${left.toFixed(1)} ${HEIGHT}L${line}L${WIDTH} ${HEIGHT}Z` }),
    s("path.line", { d: `M${line}` }),
  );
}

const STATES = { idle: "free", prompt: "reading", answer: "writing" };

function slotCard(slot) {
  const bar = h("i");
  bar.style.width = percent(slot.limit ? Math.min(1, slot.tokens / slot.limit) : 0).replace(" ", "");
  return h(
    `section.slot.${STATES[slot.state] ?? "free"}`,
    { "aria-label": `Slot ${slot.id}` },
    h("header", {}, h("b", {}, String(slot.id)), h("span", {}, STATES[slot.state] ?? slot.state)),
    h("div.track", {}, bar),
    h("small", {}, slot.tokens ? `${slot.tokens} of ${slot.limit} tokens` : "no tokens"),
  );
}

function totals({ totals: t, cache }) {
  const rows = [
    ["Requests", String(t.requests ?? 0)],
    ["Tokens read", String(t.prompt_tokens)],
    ["Tokens written", String(t.predicted_tokens)],
  ];
  if (t.drafted) rows.push(["Guessed right", `${percent(t.accepted / t.drafted)} of ${t.drafted}`]);
  if (cache)
    rows.push([
      "Keys and values",
      quantity(cache.bytes, "B") + (cache.limit ? ` of ${quantity(cache.limit, "B")}` : ""),
    ]);
  return rows;
}
