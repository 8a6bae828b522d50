"use strict";

const start = JSON.parse(document.getElementById("start").textContent);
const say = start.phrases;
const byId = (id) => document.getElementById(id);
const fields = [...document.querySelectorAll("input[data-path]")];
const HISTORY_SHOWN = 12;

let numbers = structuredClone(start.numbers);
// What the numbers were before each update since the last edit.
let earlier = [];
const wrong = new Map();
let digits = 3;

// Numbers as text

function rounded(value) {
  const text = Math.abs(value) < 1000 ? value.toFixed(digits) : value.toPrecision(3);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "\u2212");
}

const exactly = (value) => String(Number(value.toPrecision(10))).replace("-", "\u2212");
const vector = (values, write = rounded) => "[" + values.map(write).join(", ") + "]";
const fill = (text, parts) => text.replace(/\{(\w+)\}/g, (_, name) => parts[name]);
const words = (values, write) => start.words.map((word, i) => word + " " + write(values[i])).join(", ");

// Small pieces of the page; text is only ever set as text.

function element(tag, content, className) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...[content].flat());
  return made;
}

function exact(value) {
  const shown = element("span", Array.isArray(value) ? vector(value, exactly) : exactly(value), "exact");
  shown.title = Array.isArray(value) ? vector(value, String) : String(value);
  return shown;
}

const both = (value) => [(Array.isArray(value) ? vector : rounded)(value), "  \u2248 ", exact(value)];

function share(value) {
  const bar = element("span", "", "bar");
  bar.style.setProperty("--share", 100 * value + "%");
  return [bar, rounded(value)];
}

function rows(id, lines, className = () => "") {
  byId(id).replaceChildren(...lines.map(([head, ...cells], index) => {
    const header = element("th", head);
    header.scope = "row";
    return element("tr", [header, ...cells.map((cell) => element("td", cell))], className(index));
  }));
}

const put = (id, ...content) => byId(id).replaceChildren(...content.flat());
const byWord = (id, cells, className) => rows(id, start.words.map((word, i) => [word, ...cells(i)]), className);

// What the steps say

function showSteps(result) {
  byWord("encoded", (i) => [vector(start.embeddings[i]), vector(numbers.encoder[i])]);
  put("query", both(result.query));
  byWord("projected", (i) => [vector(result.keys[i]), vector(result.values[i])]);
  put("root", rounded(1 / result.scale));
  byWord("scored", (i) => [
    result.hidden ? vector(result.hidden[i]) : products(result.query, result.keys[i]) + " = " + rounded(result.raw[i]),
    rounded(result.scores[i]), exact(result.scores[i])]);
  put("total", both(result.total));
  put("shift", result.shift ? fill(say.shift, { shift: rounded(result.shift) }) : "");
  put("exponential", "e", element("sup", result.shift ? say["score.column"] + " \u2212 " + rounded(result.shift)
    : say["score.column"]));
  const most = result.weights.indexOf(Math.max(...result.weights));
  byWord("weighed", (i) => [rounded(result.exponentials[i]), share(result.weights[i]), exact(result.weights[i])],
    (i) => i === most ? "most" : "");
  put("most", fill(say.most, { word: start.words[most], share: rounded(result.weights[most]) }));
  put("context", both(result.context));
  byWord("summed", (i) => [rounded(result.weights[i]) + " \u00d7 " + vector(result.values[i]), vector(result.weighted[i])]);
  const byHand = sumOf(result.weighted.map((each) => each.map((value) => Number(value.toFixed(digits)))));
  put("by-hand", vector(byHand) === vector(result.context) ? "" : fill(say["by.hand"], { sum: vector(byHand) }));
}

const products = (query, key) => query.map((each, i) => brief(each) + " \u00d7 " + brief(key[i])).join(" + ");
const brief = (value) => String(Number(value.toPrecision(3))).replace("-", "\u2212");

function showPrediction(result) {
  put("gate", result.gate ? vector(result.gate) : "");
  put("fused", both(result.fused));
  put("readout", both(result.readout));
  rows("predicted", start.targets.map((word, i) => [word, rounded(result.logits[i]), share(result.probabilities[i]),
    exact(result.probabilities[i])]), (i) => i === numbers.truth ? "truth" : "");
  put("loss", element("b", rounded(result.loss)), "  \u2248 ", exact(result.loss));
}

function showLearning(result) {
  const learnt = Object.entries(result.gradients).filter(([name]) => name !== "v" || numbers.scoring === "additive");
  rows("gradients", learnt.map(([name, slope]) => {
    const matrix = slope.map((row) => Array.isArray(row) ? vector(row) : rounded(row)).join(", ");
    return [subscripted(name), "[" + matrix + "]", rounded(Math.hypot(...slope.flat()))];
  }));
  const lines = [...earlier, numbers].map((each, update) => {
    const then = each === numbers ? result : compute(each);
    return [String(update), rounded(then.loss), share(then.probabilities[each.truth]), ...then.weights.map(share)];
  });
  rows("history", lines.length > HISTORY_SHOWN ? [lines[0], ...lines.slice(1 - HISTORY_SHOWN)] : lines);
  for (const id of ["share-of-truth", "share-of-truth-too"]) put(id, "p(" + start.targets[numbers.truth] + ")");
}

const subscripted = (name) => name.length > 1 ? [name[0], element("sub", name.slice(2))] : name;

function showComparison() {
  rows("scorings", Object.entries(start.scorings).map(([scoring, name]) => {
    const { weights, context } = attend({ ...numbers, scoring });
    return [name, ...weights.map(share), vector(context)];
  }));
  const { context } = attend(numbers);
  rows("fusions", Object.entries(start.fusions).map(([fusion, name]) => {
    const { fused, readout, probabilities, loss } = predict({ ...numbers, fusion }, context);
    return [name, vector(fused), vector(readout), share(probabilities[numbers.truth]), rounded(loss)];
  }));
}

function show() {
  const isWrong = wrong.size > 0;
  byId("results").classList.toggle("stale", isWrong);
  put("wrong", [...wrong.values()].join(" ") + (isWrong ? " " + say.stale : ""));
  for (const id of ["step", "steps"]) byId(id).disabled = isWrong;
  byId("undo").disabled = earlier.length === 0;
  for (const name of ["scoring", "fusion"]) {
    document.querySelectorAll(`[data-${name}]`).forEach((node) => {
      node.hidden = !node.dataset[name].split(" ").includes(numbers[name]);
    });
  }
  put("step", fill(say.step, { word: start.targets[numbers.truth] }));
  if (isWrong) return;
  const result = compute(numbers);
  showSteps(result);
  showPrediction(result);
  showLearning(result);
  showComparison();
  put("summary", fill(say.summary, { weights: words(result.weights, rounded), word: start.targets[numbers.truth],
    share: rounded(result.probabilities[numbers.truth]), loss: rounded(result.loss) }));
}

// What the reader changes

const pathOf = (field) => field.dataset.path.split(" ");
const valueAt = (path) => path.reduce((inside, key) => inside[key], numbers);

function setAt([key, ...path], value, inside = numbers) {
  if (path.length) setAt(path, value, inside[key]);
  else inside[key] = value;
}

// Returns a number, or a sentence that says why the text is none.
function read(field) {
  // Full-width digits of a Chinese keyboard, and the true minus sign, are digits and a minus too.
  const text = field.value.normalize("NFKC").replace("\u2212", "-").trim();
  const parts = { field: field.getAttribute("aria-label"), text: field.value.trim(), limit: start.limit };
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return fill(text ? say["not.number"] : say.empty, parts);
  const value = Number(text);
  if (Math.abs(value) > start.limit) return fill(say["too.large"], parts);
  return value <= 0 && field.id === "rate" ? fill(say["not.positive"], parts) : value;
}

function edited(field) {
  const value = read(field);
  const isNumber = typeof value === "number";
  field.setAttribute("aria-invalid", String(!isNumber));
  if (isNumber) {
    wrong.delete(field.id);
    numbers = structuredClone(numbers);
    setAt(pathOf(field), value);
    field.title = String(value);
    earlier = [];
  } else {
    wrong.set(field.id, value);
  }
  show();
}

// A field shows three decimals of what can be learnt; the number itself stays whole until somebody types over it.
function refill() {
  wrong.clear();
  for (const field of fields) {
    const value = valueAt(pathOf(field));
    field.value = String(/^(W_|v)/.test(field.dataset.path) ? Number(value.toFixed(3)) : value);
    field.title = String(value);
    field.setAttribute("aria-invalid", "false");
  }
  for (const name of ["scoring", "fusion"]) byId(`${name}-${numbers[name]}`).checked = true;
  byId("truth").value = String(numbers.truth);
  show();
}

function learnSteps(count) {
  for (let i = 0; i < count; i += 1) {
    const next = learn(numbers);
    const learnt = [next.W_Q, next.W_K, next.W_V, next.v].flat(2);
    if (!learnt.every((value) => Math.abs(value) <= start.limit)) {
      refill();
      put("wrong", fill(say["too.far"], { limit: start.limit }));
      return;
    }
    earlier.push(numbers);
    numbers = next;
  }
  refill();
}

for (const field of fields) {
  field.addEventListener("input", () => edited(field));
  field.addEventListener("keydown", (event) => {
    const direction = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const value = direction && read(field);
    if (typeof value !== "number") return;
    event.preventDefault();
    field.value = String(Number((value + direction * (event.shiftKey ? 0.01 : 0.1)).toFixed(6)));
    edited(field);
  });
}
document.querySelectorAll("input[type=radio]").forEach((radio) => radio.addEventListener("change", () => {
  numbers = { ...numbers, [radio.name]: radio.value };
  earlier = [];
  show();
}));
byId("truth").addEventListener("change", (event) => {
  numbers = { ...numbers, truth: Number(event.target.value) };
  earlier = [];
  show();
});
byId("digits").addEventListener("change", (event) => {
  digits = Number(event.target.value);
  show();
});
byId("step").addEventListener("click", () => learnSteps(1));
byId("steps").addEventListener("click", () => learnSteps(10));
byId("undo").addEventListener("click", () => {
  numbers = earlier.pop();
  refill();
});
byId("reset").addEventListener("click", () => {
  numbers = structuredClone(start.numbers);
  earlier = [];
  refill();
});
// Enter in a field has nothing to send.
byId("form").addEventListener("submit", (event) => event.preventDefault());
refill();
