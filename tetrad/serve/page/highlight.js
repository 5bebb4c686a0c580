// Light colouring of code: comments, strings, numbers, keywords, calls. One pass of one regular
// expression a language; a language we do not know gets strings and numbers, and stays readable.

import { h } from "./dom.js";

const words = (text) => text.split(" ").join("|");
const C_LIKE = words(
  "abstract as async await bool break case catch char class const continue debugger default defer delete do double else enum export extends " +
    "extern false final finally float fn for from func function go if impl implements import in instanceof int interface let long loop match mod " +
    "move mut namespace new nil null of package private protected pub public range return self short sizeof static struct super switch template " +
    "this throw trait true try type typedef typeof undefined union unsafe unsigned use using var virtual void where while yield",
);
const PYTHON = words(
  "False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda " +
    "match nonlocal not or pass raise return self try while with yield",
);
const SHELL = words(
  "case do done echo elif else esac exit export fi for function if in local return set then until while",
);
const SQL = words(
  "and as asc between by case create delete desc distinct drop else end exists from group having in inner insert into is join left like limit " +
    "not null on or order outer right select set table then union update values view when where with",
);

const FAMILIES = {
  c: { comment: "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)", keyword: C_LIKE },
  python: {
    comment: "#[^\\n]*",
    keyword: PYTHON,
    string: "(?:[rbfuRBFU]{0,2})(?:\"\"\"[\\s\\S]*?(?:\"\"\"|$)|'''[\\s\\S]*?(?:'''|$))",
  },
  shell: { comment: "(?<![\\w$])#[^\\n]*", keyword: SHELL },
  sql: { comment: "--[^\\n]*", keyword: SQL, flags: "i" },
  markup: { comment: "<!--[\\s\\S]*?(?:-->|$)", keyword: "(?<=</?)[A-Za-z][\\w-]*" },
  data: { keyword: "true|false|null|yes|no", comment: "(?<!\\S)#[^\\n]*" },
  plain: {},
};

const NAMES = {
  c: "c cpp c++ cc h hpp cs csharp java kotlin kt js javascript jsx mjs ts typescript tsx rust rs go swift scala dart php zig cuda glsl wgsl css scss",
  python: "python py python3 pycon ruby rb r julia jl nim",
  shell: "sh bash zsh shell console dockerfile makefile make fish powershell ps1",
  sql: "sql sqlite postgres mysql",
  markup: "html xml svg vue markdown md",
  data: "json jsonc yaml yml toml ini cfg",
};
const FAMILY = new Map(
  Object.entries(NAMES).flatMap(([family, names]) => names.split(" ").map((name) => [name, family])),
);

const LONGEST = 50_000; // characters that are coloured; more stay plain, so that a frame stays a frame

/** @type {Map<string, RegExp>} */
const made = new Map();

function pattern(family) {
  const { comment, keyword, string, flags = "" } = FAMILIES[family];
  const quoted = `"(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'|\`(?:[^\`\\\\]|\\\\.)*\`?`;
  const parts = [
    comment && `(?<comment>${comment})`,
    `(?<string>${string ? `${string}|` : ""}${quoted})`,
    "(?<number>\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b)",
    keyword && (family === "markup" ? `(?<keyword>${keyword})` : `\\b(?<keyword>${keyword})\\b`),
    "\\b(?<call>[A-Za-z_]\\w*)(?=\\()",
  ];
  return new RegExp(parts.filter(Boolean).join("|"), `g${flags}`);
}

/**
 * Code as nodes: text, and spans around what has a colour.
 * @param {string} code
 * @param {string} language as after the fence
 * @returns {(Node|string)[]}
 */
export function highlight(code, language) {
  const family = FAMILY.get(language.toLowerCase()) ?? "plain";
  if (code.length > LONGEST) return [code];
  if (!made.has(family)) made.set(family, pattern(family));
  const nodes = [];
  let end = 0;
  for (const match of code.matchAll(made.get(family))) {
    const kind = Object.entries(match.groups).find(([, text]) => text !== undefined)[0];
    nodes.push(code.slice(end, match.index), h(`span.hl-${kind}`, {}, match[0]));
    end = match.index + match[0].length;
  }
  return [...nodes, code.slice(end)];
}
