// What the page does with its maps: choosing, reading, searching. Follows view_map.js in one script.

async function show(keepSize = false) {
  const pair = data.pairs[state.pair];
  if (!window.DecompressionStream) byId("readout").textContent = "This browser is too old for the page: no maps.";
  byId("blank").hidden = Boolean(pair && pair.levels.words.source.length && pair.levels.words.target.length);
  stage.hidden = !byId("blank").hidden;
  if (!pair) return;
  const level = levelOf(pair), map = mapOf(level), mine = ++turn;
  const weights = await weightsOf(map);
  if (mine !== turn) return;
  grid = { pair, level, map, weights, source: level.source, target: level.target, columns: level.source.length,
    rows: level.target.length, marks: marksOf(pair, level, map) };
  grid.picture = picture(weights, grid.columns, grid.rows, map.scale);
  leave();
  words(byId("source"), level.source);
  words(byId("target"), level.target);
  fillControls(pair, level, map);
  stage.setAttribute("aria-label", `attention of ${grid.rows} target ${state.level} over ${grid.columns} source ` +
    `${state.level}, ${map.name}`);
  layOut(keepSize);
  if (byId("glance").open) glance();
  document.documentElement.dataset.ready = "yes";
}

function words(box, list) {
  box.replaceChildren(...list.flatMap((word) => {
    const part = document.createElement("span");
    part.className = "word";
    part.textContent = word;
    return [part, " "];
  }));
}

function fillControls(pair, level, map) {
  const position = state.matches.indexOf(state.pair);
  picker.value = String(state.pair);
  byId("back").disabled = position <= 0;
  byId("next").disabled = position < 0 || position === state.matches.length - 1;
  const groups = new Map();
  for (const each of level.maps) {
    const option = document.createElement("option");
    option.value = each.key;
    option.textContent = each.name;
    if (!groups.has(each.group)) groups.set(each.group, []);
    groups.get(each.group).push(option);
  }
  mapPicker.replaceChildren(...[...groups].map(([name, options]) => {
    const group = document.createElement("optgroup");
    group.label = name;
    group.append(...options);
    return group;
  }));
  mapPicker.value = map.key;
  byId("levels").hidden = !data.tokens;
  byId("glance").hidden = level.maps.filter((each) => each.head !== undefined).length < 2;
  for (const name of ["words", "tokens"]) byId(name).setAttribute("aria-pressed", String(state.level === name));
  const count = (kind) => grid.marks.links.filter((link) => link[0] === kind).length;
  const counts = pair.gold
    ? [["hits", count("hit")], ["false", count("false")], ["missed", grid.marks.misses.length]]
    : [["links", count("link")]];
  byId("counts").replaceChildren(...counts.map(([name, value]) => {
    const pill = document.createElement("span"), number = document.createElement("b");
    number.textContent = value;
    pill.append(number, " " + name);
    return pill;
  }));
}

async function glance() {
  const level = levelOf(data.pairs[state.pair]), mine = turn;
  const heads = level.maps.filter((map) => map.head !== undefined);
  const buttons = await Promise.all(heads.map(async (map) => {
    const button = document.createElement("button");
    button.append(picture(await weightsOf(map), level.source.length, level.target.length, map.scale), map.name);
    button.setAttribute("aria-pressed", String(map === grid.map));
    button.addEventListener("click", () => choose(map.key));
    return button;
  }));
  if (mine !== turn) return;
  const across = new Set(heads.map((map) => map.head)).size;
  byId("heads").style.gridTemplateColumns = `repeat(${across}, minmax(72px, 150px))`;
  byId("heads").replaceChildren(...buttons);
}

// The cursor, by pointer or keys.
function leave() {
  state.row = state.column = -1;
  tip.style.opacity = 0;
  byId("readout").replaceChildren("\u00a0");
  for (const node of document.querySelectorAll(".word.here")) node.classList.remove("here");
  for (const node of byId("source").children) node.style.removeProperty("--look");
}

function visit(column, row) {
  leave();
  state.column = column;
  state.row = row;
  const line = grid.weights.subarray(row * grid.columns, (row + 1) * grid.columns);
  const nodes = byId("source").children;
  line.forEach((weight, index) =>
    nodes[index].style.setProperty("--look", Math.round(70 * Math.min(1, weight)) + "%"));
  nodes[column].classList.add("here");
  byId("target").children[row].classList.add("here");
  byId("readout").replaceChildren(...saying(column, row));
  draw();
}

function saying(column, row) {
  const value = document.createElement("b"), weight = grid.weights[row * grid.columns + column];
  value.textContent = grid.map.low === undefined ? "≈ " + Number(weight.toPrecision(2)) : weight.toFixed(3);
  const isolated = (word) => "\u2068" + word + "\u2069", kind = kindAt(column, row);
  return [value, "  " + isolated(grid.target[row]) + " looks at " + isolated(grid.source[column]) +
    (kind ? "  (" + kind + ")" : "")];
}

function point(event) {
  if (!grid) return;
  const box = stage.getBoundingClientRect();
  const x = event.clientX - box.left - stage.clientLeft, y = event.clientY - box.top - stage.clientTop;
  const column = Math.floor((x - grid.left + stage.scrollLeft) / grid.cell);
  const row = Math.floor((y - grid.top + stage.scrollTop) / grid.cell);
  if (x < grid.left || y < grid.top || column >= grid.columns || row >= grid.rows) {
    if (state.row >= 0) { leave(); draw(); }
    return;
  }
  if (column !== state.column || row !== state.row) visit(column, row);
  tip.replaceChildren(...saying(column, row));
  tip.style.left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 18, innerHeight - tip.offsetHeight - 8) + "px";
  tip.style.opacity = 1;
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0],
  End: [1e9, 0], PageUp: [0, -10], PageDown: [0, 10] };

function move(event) {
  const step = STEPS[event.key];
  if (!step || !grid || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const within = (value, count) => Math.max(0, Math.min(count - 1, value));
  const start = state.row < 0 ? [0, 0] : [state.column + step[0], state.row + step[1]];
  visit(within(start[0], grid.columns), within(start[1], grid.rows));
  const { cell, left, top } = grid, x = state.column * cell, y = state.row * cell;
  const roomX = stage.clientWidth - left - cell, roomY = stage.clientHeight - top - cell;
  stage.scrollLeft = Math.max(Math.min(stage.scrollLeft, x), x - roomX);
  stage.scrollTop = Math.max(Math.min(stage.scrollTop, y), y - roomY);
  draw();
}

// Controls.
function choose(key) {
  state.map = key;
  show(true);
}

function stepMap(by) {
  const maps = levelOf(data.pairs[state.pair]).maps, index = maps.indexOf(grid.map) + by;
  if (maps[index]) choose(maps[index].key);
}

function stepPair(by) {
  const next = state.matches[state.matches.indexOf(state.pair) + by];
  if (next !== undefined) { state.pair = next; show(); }
}

function setLevel(level) {
  state.level = data.tokens ? level : "words";
  show();
}

function resize(cell) {
  if (!grid) return;
  state.cell = Math.max(1, Math.min(LARGEST, cell));
  layOut(true);
}

function fit() {
  const wide = (stage.clientWidth - grid.left - 30) / Math.max(1, grid.columns);
  resize(Math.max(1, Math.min(26, wide, (0.8 * innerHeight - grid.top - 14) / Math.max(1, grid.rows))));
}

function find(text) {
  const wanted = text.trim().toLowerCase(), all = data.pairs.map((_, index) => index);
  const said = (index) => [...data.pairs[index].levels.words.source, "\n", ...data.pairs[index].levels.words.target]
    .join(" ").toLowerCase();
  state.matches = wanted ? all.filter((index) => said(index).includes(wanted)) : all;
  byId("found").textContent = wanted ? `${state.matches.length} of ${all.length}` : "";
  picker.replaceChildren(...state.matches.map((index) => {
    const option = document.createElement("option"), text = data.pairs[index].levels.words.target.join(" ");
    option.value = String(index);
    // The isolate keeps right-to-left text from swallowing the number.
    option.textContent = `${index + 1} · \u2068${text.length > 80 ? text.slice(0, 79) + "…" : text}\u2069`;
    return option;
  }));
  if (state.matches.length && !state.matches.includes(state.pair)) state.pair = state.matches[0];
  show(true);
}

const KEYS = { n: () => stepPair(1), p: () => stepPair(-1), j: () => stepMap(1), k: () => stepMap(-1),
  w: () => setLevel(state.level === "words" ? "tokens" : "words"), "+": () => resize(grid.cell + 2),
  "-": () => resize(grid.cell - 2), 0: fit, "/": () => byId("search").focus() };

stage.addEventListener("pointermove", point);
stage.addEventListener("pointerleave", () => { leave(); draw(); });
stage.addEventListener("scroll", draw);
stage.addEventListener("keydown", move);
picker.addEventListener("change", () => { state.pair = Number(picker.value); show(); });
mapPicker.addEventListener("change", () => choose(mapPicker.value));
byId("back").addEventListener("click", () => stepPair(-1));
byId("next").addEventListener("click", () => stepPair(1));
byId("words").addEventListener("click", () => setLevel("words"));
byId("tokens").addEventListener("click", () => setLevel("tokens"));
byId("smaller").addEventListener("click", KEYS["-"]);
byId("larger").addEventListener("click", KEYS["+"]);
byId("fit").addEventListener("click", fit);
byId("contrast").addEventListener("change", (event) => { state.contrast = event.target.checked; show(true); });
byId("search").addEventListener("input", (event) => find(event.target.value));
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") stepPair(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") { event.target.value = ""; find(""); stage.focus(); }
});
byId("glance").addEventListener("toggle", () => { if (byId("glance").open) glance(); });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
  if (KEYS[event.key] && grid) { event.preventDefault(); KEYS[event.key](); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(true));
new ResizeObserver(draw).observe(stage);
find("");
