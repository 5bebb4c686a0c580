// Inside the model: one decoding step as the engine runs it. Kernels with their time against the
// machine's roof, the launches in order, memory, the graph, the arena. Data from /inside.

import { ifThere } from "./api.js";
import { byId, duration, h, icon, iconButton, percent, quantity, s } from "./dom.js";

const GOLDEN_ANGLE = 137.508; // neighbouring numbers get hues far apart
const BOX = 40; // height of a node

/** Gives an element the hue of a kernel; classes make colours of it. */
function hue(element, number) {
  if (number !== null) element.style.setProperty("--h", ((195 + number * GOLDEN_ANGLE) % 360).toFixed(0));
  return element;
}

const wide = (element, share) => (element.style.setProperty("width", `${(100 * share).toFixed(3)}%`), element);
const section = (title, hint, ...content) =>
  h("section.block", {}, h("h2", {}, title, h("small", {}, hint)), ...content);

export class Inside {
  /** @param {() => string} model the name of the one that is chosen */
  constructor(model) {
    this.model = model;
    /** @type {Map<string, any>} what was measured, by model */
    this.known = new Map();
  }

  async start() {
    const name = this.model();
    this.draw(h("p.quiet", {}, "Measuring one step. The first time this takes some seconds."));
    try {
      if (!this.known.has(name)) this.known.set(name, await ifThere(`inside?model=${encodeURIComponent(name)}`));
      const data = this.known.get(name);
      this.draw(...(data ? view(data) : [h("p.quiet", {}, "This server does not show its inside.")]));
    } catch (error) {
      this.draw(h("p.quiet", {}, `${error.title ?? "It could not be shown"}. ${error.text ?? error.message}`));
    }
  }

  draw(...nodes) {
    byId("inside-view").replaceChildren(h("div.panel-inner", {}, ...nodes));
  }
}

function view(data) {
  const table = kernelTable(data);
  const show = (number) => table.rows[number] && openKernel(table.rows[number]);
  return [
    facts(data),
    section(
      "One step, launch by launch",
      "across: time; a colour is a kernel; point at one for its name",
      sequence(data, show),
    ),
    section(
      "Kernels",
      "bar: time, its dark part the least the machine allows; open one for its program",
      h("div.table", { tabindex: 0, role: "region", "aria-label": "Kernels" }, table.element),
    ),
    section("Memory", "weights by format, and room for keys and values", memory(data.memory)),
    graphs(data.graphs, show),
    section(
      "Arena",
      `${data.arena.buffers.length} intermediates share ${quantity(data.arena.bytes, "B")} instead of ${quantity(data.arena.unshared, "B")}; across: steps, up: bytes`,
      arena(data.arena),
    ),
  ];
}

function facts({ model, step, kernels }) {
  const sum = (name) => kernels.reduce((whole, kernel) => whole + kernel[name], 0);
  const rows = [
    [model.name, `${model.architecture}, ${model.layers} layers, width ${model.width}`],
    [quantity(model.parameters), `parameters, ${model.quant}, ${quantity(model.weight_bytes, "B")}`],
    [duration(step.ns), `one step: ${step.launches} launches, ${step.threads} threads`],
    [
      percent(sum("least_ns") / Math.max(sum("ns"), 1)),
      `of the speed that memory (${quantity(step.roof, "B/s")}) and arithmetic allow here`,
    ],
  ];
  const cards = rows.map(([figure, hint]) =>
    h("section.card", {}, h(figure.length > 12 ? "p.figure.long" : "p.figure", {}, figure, h("small", {}, hint))),
  );
  const busy = step.busy && h("p.quiet", {}, "Other work ran while this was measured; times may be long.");
  return h("div", {}, h("div.cards", {}, ...cards), busy);
}

/** Every launch, as wide as its time. */
function sequence({ sequence: launches, kernels }, show) {
  const total = launches.reduce((sum, [, ns]) => sum + ns, 0) || 1;
  let at = 0;
  const bars = launches.map(([number, ns]) => {
    const name = `${kernels[number].name}: ${duration(ns)}`;
    const bar = hue(
      s(
        "rect.launch",
        { x: (1000 * at) / total, y: 0, width: (1000 * ns) / total, height: 10, onclick: () => show(number) },
        s("title", {}, name),
      ),
      number,
    );
    at += ns;
    return bar;
  });
  return s(
    "svg.sequence",
    {
      viewBox: "0 0 1000 10",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${launches.length} launches in ${duration(total)}`,
    },
    ...bars,
  );
}

function kernelTable({ kernels }) {
  const longest = Math.max(...kernels.map((kernel) => kernel.ns), 1);
  const whole = kernels.reduce((sum, kernel) => sum + kernel.ns, 0) || 1;
  const heads = ["Kernel", "", "Launches", "Bytes", "Time", "Share", "Of roof", "Bound by"];
  const rows = kernels.map((kernel, number) => kernelRow(kernel, number, longest, whole));
  const head = h(
    "thead",
    {},
    h("tr", {}, ...heads.map((text, i) => h(i >= 2 && i <= 6 ? "th.right" : "th", {}, text))),
  );
  return { rows, element: h("table.kernels", {}, head, h("tbody", {}, ...rows.flatMap((row) => [row, row.text]))) };
}

function kernelRow(kernel, number, longest, whole) {
  const figures = [
    kernel.launches,
    quantity(kernel.bytes, "B"),
    duration(kernel.ns),
    percent(kernel.ns / whole),
    percent(kernel.least_ns / Math.max(kernel.ns, 1)),
  ];
  const button = h(
    "button.kernel-name",
    { type: "button", "aria-expanded": "false" },
    icon("right"),
    h("i.swatch"),
    h("span", {}, kernel.name),
  );
  const bar = h("div.kernel-bar", {}, wide(h("i"), kernel.ns / longest), wide(h("i.least"), kernel.least_ns / longest));
  const row = hue(
    h(
      "tr",
      {},
      h("td", {}, button),
      h("td", {}, bar),
      ...figures.map((text) => h("td.right", {}, String(text))),
      h("td", {}, kernel.bound),
    ),
    number,
  );
  row.text = h("tr.kernel-text", { hidden: true }, h("td", { colspan: 8 }, h("pre", { tabindex: 0 }, kernel.text)));
  button.addEventListener("click", () => {
    row.text.hidden = !row.text.hidden;
    button.setAttribute("aria-expanded", String(!row.text.hidden));
  });
  return row;
}

function openKernel(row) {
  if (row.text.hidden) row.querySelector("button").click();
  row.scrollIntoView({ block: "center" });
  row.querySelector("button").focus({ preventScroll: true });
}

function memory(parts) {
  const total = parts.reduce((sum, part) => sum + part.bytes, 0) || 1;
  const bars = parts.map((part, i) => hue(wide(h("i", { title: part.name }), part.bytes / total), i));
  const keys = parts.map((part, i) =>
    hue(h("li", {}, h("i.swatch"), part.name, " ", h("b", {}, quantity(part.bytes, "B"))), i),
  );
  return h("div", {}, h("div.strip", {}, ...bars), h("ul.keys", {}, ...keys));
}

// -- the graph -------------------------------------------------------------------------------------

/** One graph at a time; the smallest first, for that is what a layer does. */
function graphs(all, show) {
  const order = [...all].sort((a, b) => a.nodes.length - b.nodes.length);
  const stage = h("div.stage", { tabindex: 0, role: "region", "aria-label": "Graph" });
  const tabs = order.map((graph) =>
    h("button.plain", { type: "button", onclick: () => choose(graph) }, `${graph.name}, ${graph.nodes.length} nodes`),
  );
  const choose = (graph) => {
    stage.replaceChildren(drawing(graph, show));
    tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", String(order[i] === graph)));
  };
  if (order.length) choose(order[0]);
  const zoom = [
    ["add", "Zoom in", 1.25],
    ["minus", "Zoom out", 0.8],
  ].map(([name, label, by]) => iconButton(name, label, () => scale(stage, by)));
  return section(
    "Graph",
    "operands above, users below; a colour is the kernel that computes it",
    h("div.stage-bar", {}, ...tabs, h("span.space"), ...zoom),
    stage,
  );
}

function scale(stage, by) {
  const picture = stage.querySelector("svg");
  for (const side of ["width", "height"]) picture.setAttribute(side, String(Number(picture.getAttribute(side)) * by));
}

function drawing(graph, show) {
  const [width, height] = [graph.width + 40, graph.height + 20];
  const lines = graph.edges.map((points) => s("path.edge", { d: curve(points) }));
  const boxes = graph.nodes.map((node) => box(node, show));
  return s(
    "svg.graph",
    {
      viewBox: `-20 -10 ${width} ${height}`,
      width: width * 0.8,
      height: height * 0.8,
      role: "img",
      "aria-label": `Graph ${graph.name}`,
    },
    ...lines,
    ...boxes,
  );
}

/** Upright at every point it passes. */
function curve(points) {
  const ends = points.map(([x, y], i) => [x, i === 0 ? y + BOX / 2 : i === points.length - 1 ? y - BOX / 2 : y]);
  return ends
    .map(([x, y], i) => {
      if (!i) return `M${x} ${y}`;
      const [x0, y0] = ends[i - 1];
      const middle = (y0 + y) / 2;
      return `C${x0} ${middle} ${x} ${middle} ${x} ${y}`;
    })
    .join("");
}

function box(node, show) {
  const kind = node.kernel === null ? "g.node" : "g.node.computed";
  return hue(
    s(
      kind,
      { onclick: () => node.kernel !== null && show(node.kernel) },
      s("title", {}, node.line),
      s("rect", { x: node.x - node.width / 2, y: node.y - BOX / 2, width: node.width, height: BOX, rx: 7 }),
      s("text", { x: node.x, y: node.y - 3 }, node.label),
      s("text.type", { x: node.x, y: node.y + 12 }, node.type),
    ),
    node.kernel,
  );
}

/** A box for every intermediate: as wide as its life, as high as its bytes. */
function arena({ bytes, steps, buffers }) {
  const [width, height] = [1000, 220];
  const boxes = buffers.map((buffer, i) => {
    const tall = Math.max(1, (height * buffer.bytes) / bytes);
    const place = {
      x: (width * buffer.first) / steps,
      y: height - (height * buffer.offset) / bytes - tall,
      width: Math.max(1, (width * (buffer.last - buffer.first + 1)) / steps),
      height: tall,
    };
    return hue(
      s(
        "rect.life",
        place,
        s("title", {}, `${buffer.name}: ${quantity(buffer.bytes, "B")}, steps ${buffer.first} to ${buffer.last}`),
      ),
      i,
    );
  });
  return s(
    "svg.arena",
    {
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": "Lives of the intermediates",
    },
    ...boxes,
  );
}
