"""Explain, assets: the style and the script of the page, as text, so that the page is one file.

Receives nothing; `explain.page` puts both inline.
"""

STYLE = """
:root { color-scheme: light dark; --back: #f6f7f9; --card: #ffffff; --ink: #1d2530;
  --soft: #66707d; --line: #dfe3e8;
  --edge: #aab2bd; --fill: 88%; --stroke: 52%; --text: 24%; --leaf: #eef0f3; --accent: #3157c8; }
@media (prefers-color-scheme: dark) { :root {
  --back: #12161c; --card: #1a2028; --ink: #e4e9f0; --soft: #93a0af;
  --line: #2b333e; --edge: #566171; --fill: 24%; --stroke: 55%; --text: 86%; --leaf: #232b35;
  --accent: #87a5ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; }
main { max-width: 1440px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 22px; margin: 0; font-weight: 650; letter-spacing: -.01em; }
h2 { font-size: 15px; margin: 0 0 12px; font-weight: 650; }
h2 small { font-weight: 400; color: var(--soft); margin-left: 8px; }
.sub { color: var(--soft); margin: 4px 0 18px; font-family: ui-monospace, monospace;
  font-size: 13px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin-bottom: 16px; }
.fact, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.fact { padding: 12px 14px; } .fact b { display: block; font-size: 19px; font-weight: 650; }
.fact span { color: var(--soft); font-size: 12.5px; }
section { padding: 16px 18px; margin-bottom: 16px; min-width: 0; }
.two { display: grid; grid-template-columns: 3fr 2fr; gap: 16px; }
.two > section { margin-bottom: 16px; }
@media (max-width: 1000px) { .two { grid-template-columns: 1fr; } }
.scroll { overflow: auto; max-height: 66vh; }
svg { display: block; margin: 0 auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .small { font-size: 10.5px; fill: var(--soft); } svg .axis { stroke: var(--line); }
.node rect { fill: var(--leaf); stroke: var(--edge); stroke-width: 1; rx: 7; }
.node.in rect { fill: hsl(var(--h) 70% var(--fill)); stroke: hsl(var(--h) 55% var(--stroke));
  stroke-width: 1.2; }
.node.again rect { stroke-dasharray: 4 3; }
.node.out rect { stroke-width: 2.6; } .node { cursor: pointer; }
.node text { text-anchor: middle; }
.node .type { font: 10.5px ui-monospace, monospace; fill: var(--soft); }
.edge { fill: none; stroke: var(--edge); stroke-width: 1.2; }
.dim { opacity: .22; } .edge.hot { stroke: var(--accent); stroke-width: 2; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 12px;
  padding: 0 10px 6px 0; }
td { padding: 5px 10px 5px 0; border-top: 1px solid var(--line); vertical-align: middle;
  white-space: nowrap; }
td.num, th.num { text-align: right; }
td.name { max-width: 330px; overflow: hidden; text-overflow: ellipsis; }
tr.kernel { cursor: pointer; }
tr.kernel:hover, tr.kernel.hot { background: color-mix(in srgb, var(--accent) 9%, transparent); }
.chip { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 8px;
  vertical-align: -1px;
  background: hsl(var(--h) 62% 55%); }
.bar { position: relative; height: 16px; min-width: 190px; }
.bar i { position: absolute; left: 0; top: 0; bottom: 0; border-radius: 3px;
  background: hsl(var(--h) 62% 55% / .3); }
.bar i.least { background: hsl(var(--h) 62% 52%); }
pre { margin: 8px 0 4px; padding: 12px 14px; background: var(--back);
  border: 1px solid var(--line); border-radius: 8px;
  font: 12px/1.45 ui-monospace, monospace; overflow: auto; max-height: 460px; }
.life { fill: hsl(var(--h) 62% 55% / .55); stroke: hsl(var(--h) 55% 42%); }
.life:hover { fill: hsl(var(--h) 62% 55% / .9); }
.life.plain { fill: var(--leaf); stroke: var(--edge); }
.point { fill: hsl(var(--h) 62% 52%); stroke: var(--card); stroke-width: 1.5; cursor: pointer; }
.roof { fill: none; stroke: var(--soft); stroke-width: 1.6; }
.roof.low { stroke-dasharray: 5 4; stroke-width: 1.1; }
.stages { display: flex; height: 26px; border-radius: 6px; overflow: hidden; margin-bottom: 8px; }
.stages i { min-width: 1px; background: hsl(var(--h) 50% 55%); }
.keys { display: flex; flex-wrap: wrap; gap: 4px 18px; }
.keys span { color: var(--soft); font-size: 13px; } .keys b { color: var(--ink); font-weight: 550; }
#tip { position: fixed; pointer-events: none; display: none; max-width: 560px; padding: 8px 11px;
  border-radius: 7px;
  background: #0f141b; color: #eef2f7; font: 12px/1.5 ui-monospace, monospace;
  white-space: pre-wrap; z-index: 9;
  box-shadow: 0 4px 18px rgb(0 0 0 / .3); }
button { font: inherit; font-size: 12px; border: 1px solid var(--line); background: var(--back);
  color: var(--ink);
  border-radius: 6px; padding: 2px 10px; cursor: pointer; float: right; margin-left: 6px; }
"""

SCRIPT = """
const tip = document.getElementById("tip");
document.addEventListener("mousemove", event => {
  const owner = event.target.closest("[data-tip]");
  tip.style.display = owner ? "block" : "none";
  if (!owner) return;
  tip.textContent = owner.dataset.tip;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + "px";
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10
                                                                 : event.clientY + 18) + "px";
});
function mark(group) {
  document.querySelectorAll(".node").forEach(n => n.classList.toggle("dim", group !== null
    && !n.dataset.groups.split(" ").includes(group)));
  document.querySelectorAll("tr.kernel").forEach(row =>
    row.classList.toggle("hot", row.dataset.group === group));
}
function touch(node, on) {
  document.querySelectorAll(`.edge[data-ends~="${node.id}"]`).forEach(edge =>
    edge.classList.toggle("hot", on));
}
document.querySelectorAll(".node").forEach(node => {
  const group = node.dataset.groups.split(" ")[0] || null;
  node.addEventListener("mouseenter", () => { if (group) mark(group); touch(node, true); });
  node.addEventListener("mouseleave", () => { mark(null); touch(node, false); });
  node.addEventListener("click", () => { if (group) open(group); });
});
document.querySelectorAll("tr.kernel").forEach(row => {
  row.addEventListener("mouseenter", () => mark(row.dataset.group));
  row.addEventListener("mouseleave", () => mark(null));
  row.addEventListener("click", () => {
    const text = row.nextElementSibling;
    text.hidden = !text.hidden;
  });
});
function open(group) {
  const row = document.querySelector(`tr.kernel[data-group="${group}"]`);
  if (!row) return;
  row.nextElementSibling.hidden = false;
  row.scrollIntoView({ behavior: "smooth", block: "center" });
}
document.querySelectorAll("[data-zoom]").forEach(button => button.addEventListener("click", () => {
  const svg = button.closest("section").querySelector("svg.graph");
  const full = Number(svg.dataset.width);
  const room = svg.parentElement.clientWidth, now = Number(svg.getAttribute("width"));
  const height = Number(svg.getAttribute("height")), fit = Math.min(full, room) / now;
  const whole = Math.min(fit, 0.64 * innerHeight / height);
  const factor = { in: 1.25, out: 0.8, fit, whole }[button.dataset.zoom];
  svg.setAttribute("width", now * factor);
  svg.setAttribute("height", height * factor);
}));
document.querySelectorAll('[data-zoom="fit"]').forEach(button => button.click());
"""
