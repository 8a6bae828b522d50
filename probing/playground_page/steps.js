"use strict";

// One decoder step by its formulas, forward and backward. Vectors are rows and x W is their projection, as in the
// lesson; nothing here knows of the page.

// Of e^score; as in attention_steps.py.
const LARGEST_EXPONENT = 80;

const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
const add = (x, y) => x.map((value, i) => value + y[i]);
const scaled = (x, factor) => x.map((value) => value * factor);
const sumOf = (rows) => rows.reduce(add);
const project = (x, matrix) => matrix[0].map((_, column) => dot(x, matrix.map((row) => row[column])));
const outer = (x, y) => x.map((value) => scaled(y, value));
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// Steps 2 to 5: query, keys and values, scores, weights, context.
function attend({ state, encoder, W_Q, W_K, W_V, v, scoring }) {
  const query = project(state, W_Q);
  const keys = encoder.map((h) => project(h, W_K));
  const values = encoder.map((h) => project(h, W_V));
  const hidden = scoring === "additive" ? keys.map((key) => add(query, key).map(Math.tanh)) : null;
  const raw = hidden ? hidden.map((each) => dot(v, each)) : keys.map((key) => dot(query, key));
  const scale = scoring === "scaled_dot_product" ? 1 / Math.sqrt(query.length) : 1;
  const scores = scaled(raw, scale);
  const highest = Math.max(...scores);
  const shift = Math.abs(highest) > LARGEST_EXPONENT ? highest : 0;
  const exponentials = scores.map((score) => Math.exp(score - shift));
  const total = exponentials.reduce((sum, each) => sum + each, 0);
  const weights = scaled(exponentials, 1 / total);
  const weighted = values.map((value, i) => scaled(value, weights[i]));
  return { query, keys, values, hidden, raw, scale, scores, shift, exponentials, total, weights, weighted,
    context: sumOf(weighted) };
}

// Step 6: state and context become one vector, the readout, and probabilities of the target words.
function predict({ state, fusion, output, truth }, context) {
  const together = add(state, context);
  const gate = fusion === "gate" ? together.map(sigmoid) : null;
  const mixed = gate && gate.map((share, i) => share * state[i] + (1 - share) * context[i]);
  const fused = fusion === "concat" ? [...state, ...context] : fusion === "add" ? together : mixed;
  const readout = (mixed || together).map(Math.tanh);
  const logits = output.map((direction) => dot(direction, readout));
  const highest = Math.max(...logits);
  const exponentials = logits.map((logit) => Math.exp(logit - highest));
  const total = exponentials.reduce((sum, each) => sum + each, 0);
  return { gate, fused, readout, logits, probabilities: scaled(exponentials, 1 / total),
    loss: Math.log(total) + highest - logits[truth] };
}

// How the loss changes with W_Q, W_K, W_V and v: the chain rule from the loss back, no differences taken.
function differentiate({ state, encoder, v, scoring, output, truth }, attention, prediction) {
  const { query, keys, values, hidden, scale, weights, context } = attention;
  const { gate, readout, probabilities } = prediction;
  const ofLogits = probabilities.map((share, word) => share - (word === truth ? 1 : 0));
  const ofFused = project(ofLogits, output).map((slope, i) => slope * (1 - readout[i] ** 2));
  // g s + (1 - g) c with g = sigmoid(s + c): the context acts by itself and through the gate.
  const ofContext = !gate ? ofFused : ofFused.map(
    (slope, i) => slope * (1 - gate[i] + (state[i] - context[i]) * gate[i] * (1 - gate[i])));
  const ofValues = weights.map((weight) => scaled(ofContext, weight));
  const ofWeights = values.map((value) => dot(ofContext, value));
  const mean = dot(weights, ofWeights);
  const ofScores = weights.map((weight, i) => weight * (ofWeights[i] - mean));
  const additive = scoring === "additive";
  const ofKeys = ofScores.map((slope, i) => additive
    ? hidden[i].map((each, j) => slope * v[j] * (1 - each ** 2))
    : scaled(query, slope * scale));
  const ofQuery = sumOf(additive ? ofKeys : ofScores.map((slope, i) => scaled(keys[i], slope * scale)));
  const summed = (slopes) => encoder.map((h, i) => outer(h, slopes[i])).reduce((x, y) => x.map((row, i) => add(row, y[i])));
  return { W_Q: outer(state, ofQuery), W_K: summed(ofKeys), W_V: summed(ofValues),
    v: additive ? sumOf(hidden.map((each, i) => scaled(each, ofScores[i]))) : v.map(() => 0) };
}

function compute(numbers) {
  const attention = attend(numbers);
  const prediction = predict(numbers, attention.context);
  return { ...attention, ...prediction, gradients: differentiate(numbers, attention, prediction) };
}

// One step of gradient descent; the numbers given stay as they are.
function learn(numbers, result = compute(numbers)) {
  const down = (x, slope) => x.map((value, i) =>
    Array.isArray(value) ? down(value, slope[i]) : value - numbers.rate * slope[i]);
  const learnt = Object.entries(result.gradients).map(([name, slope]) => [name, down(numbers[name], slope)]);
  return { ...numbers, ...Object.fromEntries(learnt) };
}
