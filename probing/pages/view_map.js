"use strict";
// The map of one sentence pair: its weights, its marks, and how they are drawn. Followed by view.js in one script.
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const stage = byId("stage"), space = byId("space"), board = byId("board"), tip = byId("tip");
const picker = byId("picker"), mapPicker = byId("map"), pen = board.getContext("2d");
const GAMMA = 0.7, LARGEST = 40, ANGLE = 55 * Math.PI / 180, LONGEST_LABEL = 190, LABEL_EVERY = 11;
const state = { pair: 0, level: "words", map: null, row: -1, column: -1, cell: 0, matches: [], contrast: false };
let grid = null; // what is on the board: sizes, labels, weights, marks
let turn = 0;    // of two maps asked for, only the later is drawn

// Decoding: a plane is deflated bytes in base64; value = scale * (number / 65535) ** 2, see the page's own rule.
async function plane(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function weightsOf(map) {
  const high = await plane(map.high), low = map.low === undefined ? null : await plane(map.low);
  const weights = new Float32Array(high.length);
  for (let n = 0; n < high.length; n++) {
    const number = low ? high[n] * 256 + low[n] : high[n] && high[n] * 256 + 128;
    weights[n] = map.scale * Math.min(1, number / 65535) ** 2;
  }
  return weights;
}

// What a level of a pair shows: labels, and for each link of words whether gold has it.
function levelOf(pair) {
  return pair.levels[state.level] || pair.levels.words;
}

function mapOf(level) {
  return level.maps.find((map) => map.key === state.map) || level.maps[0];
}

const place = (column, row) => column + "-" + row;
const pairsOf = (flat) => Array.from({ length: flat.length / 2 }, (_, n) => [flat[2 * n], flat[2 * n + 1]]);
const placesOf = (flat) => new Set(pairsOf(flat).map(([column, row]) => place(column, row)));

function marksOf(pair, level, map) {
  const links = pairsOf(map.links);
  if (!pair.gold) return { boxes: [], links: links.map(([column, row]) => ["link", column, row]), misses: [] };
  const sure = placesOf(pair.gold.sure), possible = placesOf(pair.gold.possible), found = new Set();
  const wordOf = (side, index) => (level[side + "Word"] ? level[side + "Word"][index] : index);
  const drawn = links.map(([column, row]) => {
    const words = place(wordOf("source", column), wordOf("target", row));
    found.add(words);
    return [possible.has(words) ? "hit" : "false", column, row];
  });
  const boxes = [...pairsOf(pair.gold.sure).map((link) => ["sure", ...link]),
    ...pairsOf(pair.gold.possible).filter(([i, j]) => !sure.has(place(i, j))).map((link) => ["possible", ...link])];
  const blocks = boxes.map(([kind, i, j]) => {
    const columns = span(level, "source", i), rows = span(level, "target", j);
    return columns && rows ? [kind, columns, rows, kind === "sure" && !found.has(place(i, j))] : null;
  }).filter(Boolean);
  return { boxes: blocks, links: drawn, misses: blocks.filter((block) => block[3]) };
}

// The first and last token of a word; a word itself on the level of words.
function span(level, side, word) {
  const words = level[side + "Word"];
  if (!words) return [word, word];
  const first = words.indexOf(word);
  return first < 0 ? null : [first, words.lastIndexOf(word)];
}

function kindAt(column, row) {
  const link = grid.marks.links.find((each) => each[1] === column && each[2] === row);
  const inside = ([, columns, rows]) =>
    columns[0] <= column && column <= columns[1] && rows[0] <= row && row <= rows[1];
  if (link) return { hit: "hit", false: "false link", link: "link" }[link[0]];
  if (grid.marks.misses.some(inside)) return "missed sure gold";
  const box = grid.marks.boxes.find(inside);
  return box ? box[0] + " gold" : "";
}

// Drawing.
function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue("--" + name).trim();
  return Object.fromEntries(["ink", "soft", "line", "card", "accent", "gold", "hit", "false", "miss"]
    .map((name) => [name, read(name)]));
}

function picture(weights, columns, rows, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(colours().accent.slice(start, start + 2), 16));
  for (let row = 0; row < rows; row++) {
    const line = weights.subarray(row * columns, (row + 1) * columns);
    const full = state.contrast ? line.reduce((most, weight) => Math.max(most, weight), 0) || 1 : Math.max(1, scale);
    for (let column = 0; column < columns; column++) {
      image.data.set([red, green, blue, Math.round(255 * (line[column] / full) ** GAMMA)],
        4 * (row * columns + column));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function shortened(text) {
  if (pen.measureText(text).width <= LONGEST_LABEL) return text;
  const letters = [...text];
  while (letters.length > 1 && pen.measureText(letters.join("") + "…").width > LONGEST_LABEL) letters.pop();
  return letters.join("") + "…";
}

const fontSize = () => Math.max(10, Math.min(14, grid.cell - 1));

function measure() {
  pen.font = fontSize() + "px " + getComputedStyle(document.body).fontFamily;
  const labels = (words) => words.map(shortened);
  grid.sourceLabels = labels(grid.source);
  grid.targetLabels = labels(grid.target);
  const widths = (words) => words.map((word) => pen.measureText(word).width);
  const source = widths(grid.sourceLabels);
  grid.left = Math.ceil(Math.max(0, ...widths(grid.targetLabels))) + 18;
  grid.top = Math.ceil(Math.max(0, ...source) * Math.sin(ANGLE)) + 22;
  const reach = source.map((width, column) => (column + 0.5) * grid.cell + width * Math.cos(ANGLE));
  grid.width = grid.left + Math.max(grid.columns * grid.cell, ...reach, 0) + 14;
  grid.height = grid.top + grid.rows * grid.cell + 10;
}

function layOut(keep) {
  if (!keep) state.cell = 0;
  grid.cell = 14;
  measure();
  const room = stage.clientWidth - grid.left - 30;
  grid.cell = state.cell || Math.max(12, Math.min(26, Math.floor(room / Math.max(1, grid.columns))));
  measure();
  space.style.width = grid.width + "px";
  space.style.height = grid.height + "px";
  draw();
}

function draw() {
  if (!grid || stage.hidden) return;
  const ratio = window.devicePixelRatio || 1;
  const width = Math.min(stage.clientWidth, Math.max(grid.width, stage.clientWidth));
  const height = Math.min(stage.clientHeight, Math.ceil(grid.height));
  board.width = Math.round(width * ratio);
  board.height = Math.round(height * ratio);
  board.style.width = width + "px";
  board.style.height = height + "px";
  const paint = colours();
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.save();
  pen.beginPath();
  pen.rect(grid.left, grid.top, width, height);
  pen.clip();
  pen.translate(grid.left - stage.scrollLeft, grid.top - stage.scrollTop);
  drawHeat(paint);
  drawMarks(paint);
  drawCursor(paint);
  pen.restore();
  drawLabels(paint, width, height);
}

function drawHeat(paint) {
  const { cell, columns, rows } = grid;
  pen.imageSmoothingEnabled = false;
  if (columns && rows) pen.drawImage(grid.picture, 0, 0, columns * cell, rows * cell);
  pen.strokeStyle = paint.line;
  pen.lineWidth = 1;
  pen.beginPath();
  // Lines between small cells would hide them.
  const step = cell >= 8 ? 1 : Math.max(columns, rows, 1);
  for (let column = 0; column <= columns; column += step) {
    pen.moveTo(column * cell + 0.5, 0);
    pen.lineTo(column * cell + 0.5, rows * cell);
  }
  for (let row = 0; row <= rows; row += step) {
    pen.moveTo(0, row * cell + 0.5);
    pen.lineTo(columns * cell, row * cell + 0.5);
  }
  pen.stroke();
}

function stroke(colour, width, dash, path) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  path();
  pen.stroke();
  pen.setLineDash([]);
}

// Each kind has a shape of its own: square, dashed square, dot, cross, diamond.
function drawMarks(paint) {
  const { cell, marks } = grid, size = Math.max(2.2, Math.min(6, cell * 0.22)), thin = cell < 9;
  for (const [kind, columns, rows] of marks.boxes) {
    const inset = thin ? 0 : 2.5;
    const box = () => pen.rect(columns[0] * cell + inset, rows[0] * cell + inset,
      (columns[1] - columns[0] + 1) * cell - 2 * inset, (rows[1] - rows[0] + 1) * cell - 2 * inset);
    if (!thin) stroke(paint.card, 4, [], box);
    stroke(paint.gold, thin ? 1 : 2, kind === "possible" ? [4, 3] : [], box);
  }
  for (const [kind, column, row] of marks.links) {
    const x = (column + 0.5) * cell, y = (row + 0.5) * cell;
    if (kind === "false") {
      const cross = () => {
        pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size);
        pen.moveTo(x + size, y - size); pen.lineTo(x - size, y + size);
      };
      stroke(paint.card, thin ? 2.5 : 5, [], cross);
      stroke(paint.false, thin ? 1.2 : 2.6, [], cross);
      continue;
    }
    pen.fillStyle = kind === "hit" ? paint.hit : paint.ink;
    pen.beginPath();
    pen.arc(x, y, size, 0, 2 * Math.PI);
    pen.fill();
    if (!thin) stroke(paint.card, 1.5, [], () => pen.arc(x, y, size, 0, 2 * Math.PI));
  }
  for (const [, columns, rows] of marks.misses) {
    const x = (columns[0] + columns[1] + 1) / 2 * cell, y = (rows[0] + rows[1] + 1) / 2 * cell;
    const diamond = () => {
      pen.moveTo(x, y - size - 1); pen.lineTo(x + size + 1, y);
      pen.lineTo(x, y + size + 1); pen.lineTo(x - size - 1, y); pen.closePath();
    };
    pen.fillStyle = paint.card;
    pen.beginPath(); diamond(); pen.fill();
    stroke(paint.miss, thin ? 1.2 : 2, [], diamond);
  }
}

function drawCursor(paint) {
  if (state.row < 0) return;
  const { cell, columns, rows } = grid;
  pen.globalAlpha = 0.1;
  pen.fillStyle = paint.ink;
  pen.fillRect(0, state.row * cell, columns * cell, cell);
  pen.fillRect(state.column * cell, 0, cell, rows * cell);
  pen.globalAlpha = 1;
  stroke(paint.ink, 2, [], () => pen.rect(state.column * cell, state.row * cell, cell, cell));
}

// Labels stay in sight while the map scrolls. Where cells are too small for all, every few and the cursor's are shown.
function drawLabels(paint, width, height) {
  const { cell, left, top } = grid, every = Math.ceil(LABEL_EVERY / cell);
  const family = getComputedStyle(document.body).fontFamily;
  const wanted = (index, cursor) =>
    index === cursor || (index % every === 0 && (every === 1 || Math.abs(index - cursor) >= every || cursor < 0));
  const begin = (near) => {
    pen.font = (near ? "bold " : "") + fontSize() + "px " + family;
    pen.fillStyle = near ? paint.ink : paint.soft;
  };
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (let row = 0; row < grid.rows; row++) {
    const y = top + (row + 0.5) * cell - stage.scrollTop;
    if (y < top || y > height || !wanted(row, state.row)) continue;
    begin(row === state.row);
    pen.fillText(grid.targetLabels[row], left - 8, y);
  }
  pen.textAlign = "left";
  for (let column = 0; column < grid.columns; column++) {
    const x = left + (column + 0.5) * cell - stage.scrollLeft;
    if (x < left || x > width || !wanted(column, state.column)) continue;
    begin(column === state.column);
    pen.save();
    pen.translate(x + 2, top - 8);
    pen.rotate(-ANGLE);
    pen.fillText(grid.sourceLabels[column], 0, 0);
    pen.restore();
  }
}
