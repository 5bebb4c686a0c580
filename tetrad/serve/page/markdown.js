// Markdown to nodes. What comes in is whatever a model printed; what goes out are elements from a short
// list with text in them, so there is nothing to sanitise. While an answer streams only its last block
// is made anew: nothing in this dialect reaches back over a finished block.

import { copy, h, iconButton, visible } from "./dom.js";
import { highlight } from "./highlight.js";

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|)$/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const DISPLAY_MATH = /^ {0,3}(\$\$|\\\[)/;
const DEEPEST = 12; // lists and quotes inside each other; more is text
const MOST_ROWS = 1000; // of a table that are shown at first
const MOST_COLUMNS = 100;

/** Shows a text that grows. */
export class MarkdownView {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.text = "";
    this.start = 0; // where the last block begins
    /** @type {Node[]} nodes of the last block */
    this.last = [];
  }

  /** @param {string} raw the whole text, longer than before or another */
  update(raw) {
    // The last line may be half a line: "\r" would be a line end of its own.
    const text = visible(raw);
    if (!text.startsWith(this.text.slice(0, this.start))) this.reset();
    const blocks = split(text.slice(this.start));
    this.last.forEach((node) => node.remove());
    blocks.forEach((block) => (this.last = append(this.element, render(block, 0))));
    if (!blocks.length) this.last = [];
    this.start += blocks.length ? blocks[blocks.length - 1].at : 0;
    this.text = text;
  }

  reset() {
    this.element.replaceChildren();
    [this.start, this.last] = [0, []];
  }
}

function append(parent, nodes) {
  parent.append(...nodes);
  return nodes;
}

// -- blocks ----------------------------------------------------------------------------------------

/**
 * @typedef {{kind: string, at: number, lines: string[], info?: string}} Block
 * @param {string} text
 * @returns {Block[]}
 */
function split(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (let i = 0, at = 0; i < lines.length;) {
    if (!lines[i].trim()) {
      at += lines[i++].length + 1;
      continue;
    }
    const [block, count] = take(lines, i);
    blocks.push({ ...block, at });
    for (const end = i + count; i < end; i++) at += lines[i].length + 1;
  }
  return blocks;
}

/** The block that begins at line `i`, and how many lines it takes. */
function take(lines, i) {
  const line = lines[i];
  if (FENCE.test(line)) return takeFence(lines, i);
  if (DISPLAY_MATH.test(line)) return takeMath(lines, i);
  if (HEADING.test(line)) return [{ kind: "heading", lines: [line] }, 1];
  if (RULE.test(line)) return [{ kind: "rule", lines: [line] }, 1];
  if (isTable(lines, i)) return takeWhile(lines, i, "table", (next) => next.includes("|"));
  if (QUOTE.test(line)) return takeWhile(lines, i, "quote", (next) => QUOTE.test(next));
  if (ITEM.test(line)) return takeList(lines, i);
  return takeWhile(lines, i, "paragraph", (next, j) => !interrupts(lines, j));
}

function takeWhile(lines, i, kind, belongs) {
  let end = i + 1;
  while (end < lines.length && lines[end].trim() && belongs(lines[end], end)) end++;
  return [{ kind, lines: lines.slice(i, end) }, end - i];
}

/** A fence that nobody closes reaches to the end: so it is while it streams. */
function takeFence(lines, i) {
  const [, indent, fence, info] = lines[i].match(FENCE);
  const closing = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}[ \\t]*$`);
  let end = i + 1;
  while (end < lines.length && !closing.test(lines[end])) end++;
  const inner = lines
    .slice(i + 1, end)
    .map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line.trimStart()));
  return [{ kind: "code", lines: inner, info: info.trim() }, Math.min(end + 1, lines.length) - i];
}

function takeMath(lines, i) {
  const close = lines[i].match(DISPLAY_MATH)[1] === "$$" ? "$$" : "\\]";
  let end = i;
  const isClosed = (line, from) => line.indexOf(close, from) >= 0;
  while (end < lines.length && lines[end].trim() && !isClosed(lines[end], end === i ? lines[i].search(/\S/) + 2 : 0))
    end++;
  return [{ kind: "math", lines: lines.slice(i, end + 1) }, Math.min(end + 1, lines.length) - i];
}

/** A list takes its items, what is indented below them, and empty lines between. */
function takeList(lines, i) {
  const first = lines[i].match(ITEM);
  const indent = first[1].length;
  const isSame = (line) => {
    const item = line.match(ITEM);
    return item && (item[1].length > indent || /\d/.test(item[2]) === /\d/.test(first[2])) && !RULE.test(line);
  };
  let end = i + 1;
  while (end < lines.length) {
    const next = lines.slice(end, end + 3).find((line) => line.trim()) ?? "";
    const isInside = next.search(/\S/) > indent;
    const isLazy = lines[end].trim() && lines[end - 1].trim() && !interrupts(lines, end);
    if (!next || !(isSame(next) || isInside || isLazy)) break;
    end++;
  }
  while (!lines[end - 1].trim()) end--;
  return [{ kind: "list", lines: lines.slice(i, end) }, end - i];
}

const isTable = (lines, i) =>
  lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && TABLE_RULE.test(lines[i + 1]);

/** Whether line `i` ends the paragraph before it. */
function interrupts(lines, i) {
  const line = lines[i];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    ITEM.test(line) ||
    DISPLAY_MATH.test(line) ||
    isTable(lines, i)
  );
}

/** @returns {Node[]} */
function render(block, depth) {
  const text = block.lines.join("\n");
  switch (block.kind) {
    case "code":
      return [codeBlock(text, block.info ?? "")];
    case "math":
      return [h("p.math", { dir: "ltr" }, text)];
    case "heading":
      return [heading(text)];
    case "rule":
      return [h("hr")];
    case "table":
      return [table(block.lines)];
    case "quote":
      return [
        h(
          "blockquote",
          { dir: "auto" },
          ...undirected(
            inner(
              block.lines.map((line) => line.replace(QUOTE, "")),
              depth,
            ),
          ),
        ),
      ];
    case "list":
      return [list(block.lines, depth)];
    default:
      return [h("p", { dir: "auto" }, ...inline(text.trimStart()))];
  }
}

/** The blocks inside a block. */
function inner(lines, depth) {
  if (depth >= DEEPEST) return [h("p", { dir: "auto" }, lines.join("\n"))];
  return split(lines.join("\n")).flatMap((block) => render(block, depth + 1));
}

/** Paragraphs that run as what holds them does: a direction of their own would hide their text from it. */
function undirected(nodes) {
  nodes.forEach((node) => node.nodeName === "P" && node.removeAttribute("dir"));
  return nodes;
}

/** Headings of an answer begin at level 3: above them are the page's and the message's own. */
function heading(line) {
  const [, marks, text = ""] = line.match(HEADING);
  return h(`h${Math.min(marks.length + 2, 6)}`, { dir: "auto" }, ...inline(text));
}

function codeBlock(code, info) {
  const language = info.split(/\s/)[0];
  const button = iconButton("copy", "Copy code", () => copy(code, button));
  const head = h("div.code-head", {}, h("span", {}, language || "text"), button);
  return h(
    "div.code",
    { dir: "ltr" },
    head,
    h("pre", { tabindex: 0, "aria-label": `Code, ${language || "text"}` }, h("code", {}, ...highlight(code, language))),
  );
}

function list(lines, depth) {
  const items = itemsOf(lines);
  const number = Number.parseInt(items[0].mark, 10);
  const isLoose = lines.some((line, i) => !line.trim() && i);
  const made = items.map((item) => listItem(item, depth, isLoose));
  return Number.isNaN(number)
    ? h("ul", { dir: "auto" }, ...made)
    : h("ol", { dir: "auto", start: number === 1 ? null : number }, ...made);
}

/** @returns {{mark: string, lines: string[]}[]} */
function itemsOf(lines) {
  const items = [];
  let indent = lines[0].match(ITEM)[1].length;
  for (const line of lines) {
    const item = line.match(ITEM);
    if (item && item[1].length <= indent + 1 && !(items.length && item[1].length >= items[items.length - 1].width)) {
      indent = item[1].length;
      items.push({ mark: item[2], width: indent + item[2].length + 1, lines: [item[3] ?? ""] });
    } else {
      const current = items[items.length - 1];
      const blanks = line.search(/\S|$/);
      current.lines.push(line.slice(Math.min(blanks, current.width)));
    }
  }
  return items;
}

function listItem(item, depth, isLoose) {
  const task = item.lines[0].match(/^\[([ xX])\][ \t]+(.*)/);
  if (task) item.lines[0] = task[2];
  const nodes = undirected(inner(item.lines, depth));
  const tight = isLoose ? nodes : nodes.flatMap((node) => (node.nodeName === "P" ? [...node.childNodes] : [node]));
  const box =
    task &&
    h("input", {
      type: "checkbox",
      disabled: true,
      checked: task[1] !== " ",
      "aria-label": task[1] === " " ? "open" : "done",
    });
  return h(task ? "li.task" : "li", {}, box, ...tight);
}

function table(lines) {
  const [head, rule, ...rows] = lines.map(cells);
  const sides = rule.map((cell) => (/^:-+:$/.test(cell) ? "center" : /-:$/.test(cell) ? "right" : ""));
  const row = (kind, texts) =>
    h(
      "tr",
      {},
      ...head.map((_, i) => h(sides[i] ? `${kind}.${sides[i]}` : kind, { dir: "auto" }, ...inline(texts[i] ?? ""))),
    );
  const body = h("tbody", {}, ...rows.slice(0, MOST_ROWS).map((texts) => row("td", texts)));
  const more = rows.length - MOST_ROWS;
  const whole = h("table", {}, h("thead", {}, row("th", head)), body);
  const button =
    more > 0 &&
    h(
      "button.link",
      {
        type: "button",
        onclick: () => (body.append(...rows.slice(MOST_ROWS).map((texts) => row("td", texts))), button.remove()),
      },
      `Show ${more} more rows`,
    );
  return h("div.table", { tabindex: 0, role: "region", "aria-label": "Table" }, whole, button);
}

/** Cells between bars; a bar in code or after a backslash is text. */
function cells(line) {
  const inside = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return (inside.match(/(?:\\.|`[^`]*`|[^|\\`]|[\\`])*\|?/g) ?? [])
    .slice(0, MOST_COLUMNS)
    .map((cell) => cell.replace(/\|$/, "").replaceAll("\\|", "|").trim());
}

// -- inside a line ---------------------------------------------------------------------------------

// The first that matches at a place wins; none looks far for its end.
const INLINE = new RegExp(
  [
    "(?<escape>\\\\[!-/:-@[-`{-~])",
    "(?<code>(?<ticks>`+)(?!`)(?<inside>[\\s\\S]{1,4000}?)(?<!`)\\k<ticks>(?!`))",
    "(?<math>\\$\\$[^$]{1,2000}\\$\\$|\\$(?![\\s\\d])[^$\\n]{1,400}(?<!\\s)\\$(?!\\d)|\\\\\\([^\\n]{1,400}?\\\\\\))",
    "(?<image>!\\[(?<alt>[^\\]\\n]{0,400})\\]\\(\\s*<?(?<source>[^()\\s<>]*(?:\\([^()\\s]*\\)[^()\\s<>]*)*)>?(?:\\s+[\"'][^\\n]{0,400}?[\"'])?\\s*\\))",
    "(?<link>\\[(?<label>(?:[^\\[\\]\\n]|\\[[^\\[\\]\\n]{0,200}\\]){1,400})\\]\\(\\s*<?(?<target>[^()\\s<>]*(?:\\([^()\\s]*\\)[^()\\s<>]*)*)>?(?:\\s+[\"'][^\\n]{0,400}?[\"'])?\\s*\\))",
    "(?<auto><(?:https?:\\/\\/|mailto:)[^\\s<>]{1,2000}>)",
    "(?<bare>\\bhttps?:\\/\\/[^\\s<>`\"'\\\\]{1,2000})",
    // What is strong or emphasised ends at the next mark of its kind, so that a mark without a partner costs nothing.
    "\\*\\*(?=\\S)(?<strong>(?:[^*]|\\*(?!\\*)|\\*(?=\\*\\*(?!\\*)))+?)(?<=\\S)\\*\\*(?!\\*)",
    "(?<!\\w)__(?=\\S)(?<strong2>(?:[^_]|_(?!_))+?)(?<=\\S)__(?!\\w)",
    "(?<!\\*)\\*(?=[^\\s*])(?<em>(?:[^*\\n]|\\*\\*[^*\\n]+\\*\\*)+?)(?<=\\S)\\*(?!\\*)",
    "(?<!\\w)_(?=[^\\s_])(?<em2>(?:[^_\\n]|(?<=\\w)_(?=\\w))+?)(?<=\\S)_(?!\\w)",
    "(?<strike>~~(?=\\S)(?<struck>[^\\n]{1,1000}?)~~)",
    "(?<br> {2,}\\n|\\\\\\n)",
  ].join("|"),
  "g",
);

/** @param {string} text @returns {(Node|string)[]} */
function inline(text, depth = 0) {
  const nodes = [];
  let end = 0;
  for (const match of depth > 6 ? [] : text.matchAll(INLINE)) {
    nodes.push(text.slice(end, match.index), ...span(match.groups, match[0], depth + 1));
    end = match.index + match[0].length;
  }
  nodes.push(text.slice(end));
  return nodes.filter((node) => node !== "");
}

function span(found, whole, depth) {
  if (found.escape) return [whole.slice(1)];
  if (found.code) return [h("code", { dir: "ltr" }, found.inside.replace(/^ ([\s\S]*\S[\s\S]*) $/, "$1"))];
  if (found.math) return [h("span.math", { dir: "ltr" }, whole)];
  if (found.image) return link(found.source, ["Image: ", found.alt || found.source], whole);
  if (found.link) return link(found.target, inline(found.label, depth), whole);
  if (found.auto) return link(whole.slice(1, -1), [whole.slice(1, -1)], whole);
  if (found.bare) return bareLink(whole);
  const [strong, em] = [found.strong ?? found.strong2, found.em ?? found.em2];
  if (strong) return [h("strong", {}, ...inline(strong, depth))];
  if (em) return [h("em", {}, ...inline(em, depth))];
  if (found.strike) return [h("del", {}, ...inline(found.struck, depth))];
  return [h("br")];
}

/** Marks of the sentence around an address are not part of it. */
function bareLink(text) {
  const stray = text.match(/(?:[.,:;!?*_~'")\]]|&gt;)+$/)?.[0] ?? "";
  const tail = stray.startsWith(")") && text.includes("(") ? stray.slice(1) : stray;
  const url = tail ? text.slice(0, -tail.length) : text;
  return [...link(url, [url], url), tail];
}

const SAFE = new Set(["http:", "https:", "mailto:"]);

/** A link if its scheme is harmless and it says where it leads; else the text as it was written. */
function link(target, label, whole) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return [whole];
  }
  if (!SAFE.has(url.protocol)) return [whole];
  return [h("a", { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...label)];
}
