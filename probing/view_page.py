"""The frame of the HTML view: style, script and skeleton. `{{name}}` is filled in by `view.write_view`."""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}}</title>
<style>
:root { --page: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #667085; --line: #e4e7ec; --accent: #3049c9;
  --gold: #b07d00; --hit: #0b8a47; --false: #d9480f; --miss: #b0226b; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1216; --card: #171b21; --ink: #e6e9ef; --soft: #98a2b3;
  --line: #2c333d; --accent: #8aa2ff; --gold: #f0b93a; --hit: #41d98a; --false: #ff8a4c; --miss: #ff7ab8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", "Noto Sans Hebrew", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 22px; line-height: 1.25; margin: 0; letter-spacing: -0.01em; }
.note { color: var(--soft); margin: 4px 0 20px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 18px 20px; }
.bar { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; margin-bottom: 14px; }
.bar select { flex: 1 1 320px; min-width: 0; }
select, button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 6px 12px; height: 36px; }
button:hover:enabled, select:hover { border-color: var(--accent); }
button:focus-visible, select:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
button:disabled { opacity: 0.4; }
.pair { display: grid; grid-template-columns: max-content 1fr; gap: 4px 14px; margin: 0 0 14px; align-items: baseline; }
.pair dt { color: var(--soft); font-size: 12px; text-transform: uppercase; letter-spacing: 0.06em; }
.pair dd { margin: 0; line-height: 1.75; }
.word { unicode-bidi: isolate; border-radius: 5px; padding: 1px 3px;
  background: color-mix(in srgb, var(--accent) var(--look, 0%), transparent); }
.word.here { box-shadow: 0 0 0 2px var(--ink); }
.counts { display: flex; gap: 8px; flex-wrap: wrap; margin-bottom: 10px; font-variant-numeric: tabular-nums; }
.counts:empty { display: none; }
.counts span { border: 1px solid var(--line); border-radius: 999px;
  padding: 1px 11px; font-size: 13px; color: var(--soft); }
.counts b { color: var(--ink); font-weight: 650; }
.stage { overflow: auto; padding: 2px; }
.blank { color: var(--soft); padding: 24px 0; }
.legend { display: flex; flex-wrap: wrap; gap: 10px 22px; align-items: center; margin-top: 16px; color: var(--soft);
  font-size: 13px; }
.legend span { display: inline-flex; gap: 8px; align-items: center; }
#tip { position: fixed; pointer-events: none; background: var(--ink); color: var(--page); border-radius: 8px;
  padding: 5px 10px; font-size: 13px; max-width: 60vw; opacity: 0; transition: opacity 0.08s; z-index: 2; }
#tip b { font-variant-numeric: tabular-nums; }
{{heatmap_css}}
</style>
</head>
<body>
<main>
<h1>{{title}}</h1>
<p class="note">{{note}}</p>
<div class="card">
<div class="bar">
<button id="back" aria-label="previous sentence" title="previous (left arrow)">&#8592;</button>
<select id="picker" aria-label="sentence">{{options}}</select>
<button id="next" aria-label="next sentence" title="next (right arrow)">&#8594;</button>
</div>
<dl class="pair"><dt>source</dt><dd id="source" dir="auto"></dd><dt>target</dt><dd id="target" dir="auto"></dd></dl>
<div class="counts" id="counts"></div>
<div class="stage" id="stage">{{first}}</div>
<div class="legend">{{legend}}</div>
</div>
</main>
<div id="tip"></div>
{{templates}}
<script type="application/json" id="data">{{data}}</script>
<script>
"use strict";
const sentences = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const stage = byId("stage"), picker = byId("picker"), tip = byId("tip");
let current = 0;

function words(box, list) {
  box.replaceChildren();
  list.forEach((word, index) => {
    const span = document.createElement("span");
    span.className = "word";
    span.textContent = word;
    box.append(span, index + 1 < list.length ? " " : "");
  });
}

function counts(entry) {
  byId("counts").replaceChildren(...entry.counts.map(([name, value]) => {
    const pill = document.createElement("span"), number = document.createElement("b");
    number.textContent = value;
    pill.append(number, " " + name);
    return pill;
  }));
}

function show(index) {
  current = Math.max(0, Math.min(sentences.length - 1, index));
  const entry = sentences[current];
  if (!entry) return;
  stage.replaceChildren(byId("view" + current).content.cloneNode(true));
  words(byId("source"), entry.source);
  words(byId("target"), entry.target);
  counts(entry);
  picker.value = String(current);
  byId("back").disabled = current === 0;
  byId("next").disabled = current === sentences.length - 1;
  leave();
}

function leave() {
  tip.style.opacity = 0;
  document.querySelectorAll(".here, .hm-near").forEach((node) => node.classList.remove("here", "hm-near"));
  document.querySelectorAll(".word").forEach((node) => node.style.removeProperty("--look"));
  const cursor = stage.querySelector(".hm-cursor");
  if (cursor) cursor.style.visibility = "hidden";
}

function point(event) {
  const svg = event.target.closest && event.target.closest("svg");
  if (!svg || !stage.contains(svg)) return leave();
  const box = svg.getBoundingClientRect(), cell = Number(svg.dataset.cell);
  const column = Math.floor((event.clientX - box.left - Number(svg.dataset.left)) / cell);
  const row = Math.floor((event.clientY - box.top - Number(svg.dataset.top)) / cell);
  const entry = sentences[current];
  if (column < 0 || row < 0 || column >= entry.source.length || row >= entry.target.length) return leave();
  leave();
  const cursor = svg.querySelector(".hm-cursor");
  cursor.setAttribute("x", column * cell);
  cursor.setAttribute("y", row * cell);
  cursor.style.visibility = "visible";
  svg.querySelectorAll(".hm-column")[column].classList.add("hm-near");
  svg.querySelectorAll(".hm-row")[row].classList.add("hm-near");
  byId("target").children[row].classList.add("here");
  [...byId("source").children].forEach((node, i) =>
    node.style.setProperty("--look", Math.round(70 * entry.weights[row][i] / 1000) + "%"));
  byId("source").children[column].classList.add("here");
  const value = document.createElement("b");
  value.textContent = (entry.weights[row][column] / 1000).toFixed(3);
  const kind = entry.kinds[column + "-" + row];
  const wrap = (word) => "\\u2068" + word + "\\u2069";
  tip.replaceChildren(value, "  " + wrap(entry.target[row]) + " looks at " + wrap(entry.source[column]),
    kind ? "  (" + kind + ")" : "");
  tip.style.left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 18, innerHeight - tip.offsetHeight - 8) + "px";
  tip.style.opacity = 1;
}

stage.addEventListener("pointermove", point);
stage.addEventListener("pointerleave", leave);
picker.addEventListener("change", () => show(Number(picker.value)));
byId("back").addEventListener("click", () => show(current - 1));
byId("next").addEventListener("click", () => show(current + 1));
document.addEventListener("keydown", (event) => {
  if (event.target === picker || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowLeft") show(current - 1);
  if (event.key === "ArrowRight") show(current + 1);
});
show(0);
</script>
</body>
</html>
"""
