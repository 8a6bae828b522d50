"""Say the worked example in words and numbers, in English and in Chinese; rounded values stand beside exact ones."""

import numpy as np

from .explanation import Formula, Part, Sentence, Share, Step, Token, fill, formula, number, table, vector
from .walk_steps import checked_language
from .worked_example import FUSIONS, SOURCE, STEP, TARGET, WorkedExample

_PHRASES: dict[str, dict[str, str]] = {
    "en": {
        "title": "The worked example: I love cats -> 喜",
        "encode": "Encode",
        "encode.text": (
            "The source is {source}, the target {target}; the decoder has read {read} and predicts {next}. "
            "Embeddings {e} and the encoder's outputs {h}:"
        ),
        "word": "word",
        "project": "Query, keys, values",
        "project.text": "With {identity}, the state {s} = {state} is the query, {q} = {query}, and keys and values are "
        "the encoder's outputs.",
        "score": "Score",
        "score.text": "Scaled dot product, {formula}, {width}, {root}.",
        "score.column": "score",
        "exact": "more exactly",
        "weigh": "Softmax",
        "weigh.text": "The exponentials divided by their sum, {total}.",
        "weigh.column": "weight a",
        "sum": "Context",
        "sum.text": "The weighted sum of the values.",
        "sum.after": "{c} = {rounded}, more exactly {exact}.",
        "sum.by_hand": " (Adding the rounded products by hand gives {rounded}.)",
        "fuse": "Fuse and predict",
        "fuse.text": (
            "The context of the dot product joins the state. The lesson stops here; readout r = tanh(s + c) and the "
            "output layer over the six target words are this package's, with weights chosen to be followed by hand "
            "(the identity for each part, gate = sigmoid(s + c), one direction for each word)."
        ),
        "fuse.kind": "fusion",
        "fuse.fused": "fused",
        "fuse.best": "most likely",
        "fuse.loss": "cross-entropy",
        "additive": "The same vectors under both scoring functions",
        "additive.text": "Additive: {formula}, W_q = W_k = I, v = {v}.",
        "additive.dot": "dot score",
        "additive.dot_weight": "dot weight",
        "additive.score": "additive score",
        "additive.weight": "additive weight",
        "additive.after": "Contexts: dot product {dot}, additive {additive}.",
        "flow": "The flow",
    },
    "zh": {
        "title": "计算示例：I love cats → 喜",
        "encode": "编码",
        "encode.text": (
            "源句 {source}，目标句 {target}；解码器已读入 {read}，要预测 {next}。词嵌入 {e} 与编码器输出 {h}："
        ),
        "word": "词",
        "project": "构建 Query、Key、Value",
        "project.text": "设 {identity}：当前状态 {s} = {state} 即查询 {q} = {query}，键和值即编码器输出。",
        "score": "注意力评分",
        "score.text": "缩放点积 {formula}，{width}，{root}。",
        "score.column": "评分",
        "exact": "更精确",
        "weigh": "Softmax 归一化",
        "weigh.text": "指数除以它们的和 {total}。",
        "weigh.column": "权重 a",
        "sum": "上下文向量",
        "sum.text": "对值向量加权求和。",
        "sum.after": "{c} = {rounded}，更精确为 {exact}。",
        "sum.by_hand": "（把四舍五入后的乘积相加得 {rounded}。）",
        "fuse": "融合并预测",
        "fuse.text": (
            "点积得到的上下文与当前状态结合。课文到此为止；读出 r = tanh(s + c) 和六个目标词上的输出层由本软件包给出，"
            "其权重便于手算（各部分取单位矩阵，门控 = sigmoid(s + c)，每个词一个方向）。"
        ),
        "fuse.kind": "融合方式",
        "fuse.fused": "结合后",
        "fuse.best": "最可能",
        "fuse.loss": "交叉熵",
        "additive": "同样的向量，两种评分函数",
        "additive.text": "加性：{formula}，W_q = W_k = I，v = {v}。",
        "additive.dot": "点积评分",
        "additive.dot_weight": "点积权重",
        "additive.score": "加性评分",
        "additive.weight": "加性权重",
        "additive.after": "上下文：点积 {dot}，加性 {additive}。",
        "flow": "全流程图解",
    },
}
_FUSION_NAMES = {"concat": "拼接", "add": "相加", "gate": "门控"}
_E = formula("eᵢ", "e_i", "e<sub>i</sub>")
_H = formula("hᵢ", "h_i", "h<sub>i</sub>")
_S2 = formula("s₂", "s_2", "s<sub>2</sub>")
_C2 = formula("c₂", "c_2", "c<sub>2</sub>")
_Q = formula("Q")
_K = formula("Kᵢ", "K_i", "K<sub>i</sub>")
_V = formula("Vᵢ", "V_i", "V<sub>i</sub>")
_IDENTITY = formula("W_Q = W_K = W_V = I", "W_Q = W_K = W_V = I", "W<sub>Q</sub> = W<sub>K</sub> = W<sub>V</sub> = I")
_SCORE = formula("Q·Kᵢ / √d_k", r"Q \cdot K_i / \sqrt{d_k}", "Q&middot;K<sub>i</sub> / &radic;d<sub>k</sub>")
_DOT = formula("Q·Kᵢ", r"Q \cdot K_i", "Q&middot;K<sub>i</sub>")
_ADDITIVE = formula("v·tanh(Q + Kᵢ)", r"v \cdot \tanh(Q + K_i)", "v&middot;tanh(Q + K<sub>i</sub>)")
_HIDDEN = formula("tanh(Q + Kᵢ)", r"\tanh(Q + K_i)", "tanh(Q + K<sub>i</sub>)")
_EXPONENTIAL = formula("e^score", r"e^{\mathrm{score}}", "e<sup>score</sup>")
_PRODUCT = formula("aᵢ Vᵢ", "a_i V_i", "a<sub>i</sub> V<sub>i</sub>")
_READOUT = formula("r")


def example_title(lang: str = "en") -> Sentence:
    """Return the headline of the worked example."""
    return (_PHRASES[checked_language(lang)]["title"],)


def example_steps(example: WorkedExample, lang: str = "en") -> list[Step]:
    """Return the worked example step by step: the six steps, both scoring functions, the flow as a drawing.

    Raises:
        ValueError: a language other than `en` and `zh`.
    """
    say = _PHRASES[checked_language(lang)]
    return [_encode(example, say), _project(example, say), _score(example, say), _weigh(example, say),
            _sum(example, say), _fuse(example, say, lang), _both(example, say), _flow(example, say)]  # fmt: skip


def _encode(example: WorkedExample, say: dict[str, str]) -> Step:
    text = fill(
        say["encode.text"],
        source=Token(" ".join(SOURCE)),
        target=Token(" ".join(TARGET)),
        read=Token(" ".join(TARGET[:STEP])),
        next=Token(TARGET[STEP]),
        e=_E,
        h=_H,
    )
    rows = (
        (Token(word), vector(e, 1), vector(h, 2))
        for word, e, h in zip(SOURCE, example.embeddings, example.encoder, strict=True)
    )
    return Step(say["encode"], text, table([say["word"], _E, _H], rows))


def _project(example: WorkedExample, say: dict[str, str]) -> Step:
    text = fill(
        say["project.text"],
        identity=_IDENTITY,
        s=_S2,
        state=vector(example.state, 2),
        q=_Q,
        query=vector(example.dot.query, 2),
    )
    rows = (
        (Token(word), vector(k, 2), vector(v, 2))
        for word, k, v in zip(SOURCE, example.dot.keys, example.dot.values, strict=True)
    )
    return Step(say["project"], text, table([say["word"], _K, _V], rows))


def _score(example: WorkedExample, say: dict[str, str]) -> Step:
    steps, root = example.dot, 1 / example.dot.scale
    width = formula(f"d_k = {len(steps.query)}", html=f"d<sub>k</sub> = {len(steps.query)}")
    text = fill(
        say["score.text"],
        formula=_SCORE,
        width=width,
        root=formula(f"√d_k = {root:.3f}", rf"\sqrt{{d_k}} = {root:.3f}", f"&radic;d<sub>k</sub> = {root:.3f}"),
    )
    rows = []
    for word, key, raw, score in zip(SOURCE, steps.keys, steps.raw, steps.scores, strict=True):
        products = " + ".join(f"{q:.2g} × {k:.2g}" for q, k in zip(steps.query, key, strict=True))
        shown = formula(f"{products} = {raw:.3f}", f"{products} = {raw:.3f}".replace("×", r"\times"))
        rows.append((Token(word), shown, number(score), number(score, 6)))
    return Step(say["score"], text, table([say["word"], _DOT, say["score.column"], say["exact"]], rows))


def _weigh(example: WorkedExample, say: dict[str, str]) -> Step:
    steps, exponential = example.dot, _EXPONENTIAL
    if steps.shift:
        exponential = formula(
            f"e^(score - {steps.shift:.3f})",
            rf"e^{{\mathrm{{score}} - {steps.shift:.3f}}}",
            f"e<sup>score &minus; {steps.shift:.3f}</sup>",
        )
    rows = (
        (Token(word), number(power), Share(weight), number(weight, 6))
        for word, power, weight in zip(SOURCE, steps.exponentials, steps.weights, strict=True)
    )
    text = fill(say["weigh.text"], total=number(steps.total))
    return Step(say["weigh"], text, table([say["word"], exponential, say["weigh.column"], say["exact"]], rows))


def _sum(example: WorkedExample, say: dict[str, str]) -> Step:
    steps = example.dot
    rows = (
        (Token(word), _times(a, v), vector(w))
        for word, a, v, w in zip(SOURCE, steps.weights, steps.values, steps.weighted, strict=True)
    )
    after: Sentence = fill(say["sum.after"], c=_C2, rounded=vector(steps.context), exact=vector(steps.context, 5))
    by_hand = np.round(steps.weighted, 3).sum(0)
    if not np.array_equal(np.round(steps.context, 3), np.round(by_hand, 3)):
        after += fill(say["sum.by_hand"], rounded=vector(by_hand))
    return Step(say["sum"], (say["sum.text"],), table([say["word"], "a × V", _PRODUCT], rows), after)


def _fuse(example: WorkedExample, say: dict[str, str], lang: str) -> Step:
    rows = []
    for kind in FUSIONS:
        best = int(example.probabilities[kind].argmax())
        rows.append(
            (
                _FUSION_NAMES[kind] if lang == "zh" else kind,
                vector(example.fused[kind], 2),
                vector(example.readouts[kind]),
                Share(example.probabilities[kind][STEP]),
                Token(TARGET[best]),
                number(example.cross_entropy[kind]),
            )
        )
    header: list[Part] = [say["fuse.kind"], say["fuse.fused"], _READOUT, f"p({TARGET[STEP]})", say["fuse.best"],
                          say["fuse.loss"]]  # fmt: skip
    return Step(say["fuse"], (say["fuse.text"],), table(header, rows))


def _both(example: WorkedExample, say: dict[str, str]) -> Step:
    dot, additive = example.dot, example.additive
    assert additive.hidden is not None and additive.score_vector is not None
    rows = (
        (Token(word), number(s), Share(a), vector(h), number(t), Share(b))
        for word, s, a, h, t, b in zip(
            SOURCE, dot.scores, dot.weights, additive.hidden, additive.scores, additive.weights, strict=True
        )
    )
    header: list[Part] = [say["word"], say["additive.dot"], say["additive.dot_weight"], _HIDDEN, say["additive.score"],
              say["additive.weight"]]  # fmt: skip
    text = fill(say["additive.text"], formula=_ADDITIVE, v=vector(additive.score_vector, 0))
    after = fill(say["additive.after"], dot=vector(dot.context), additive=vector(additive.context))
    return Step(say["additive"], text, table(header, rows), after)


def _flow(example: WorkedExample, say: dict[str, str]) -> Step:
    steps = example.dot
    columns = [
        [word, "|", f"h_{i} = {vector(h, 2).plain}", "|", f"K_{i}, V_{i}"]
        for i, (word, h) in enumerate(zip(SOURCE, example.encoder, strict=True), start=1)
    ]
    width = max(len(cell) for column in columns for cell in column) + 3
    lines = ["".join(column[row].ljust(width) for column in columns).rstrip() for row in range(5)]
    lines += ["", f"decoder state s_2 = {vector(example.state, 2).plain} -> Q = {vector(steps.query, 2).plain}"]
    lines += [
        f"  Q.K_{i} / sqrt(d_k) = {score:.3f} -> a_{i} = {weight:.3f}"
        for i, (score, weight) in enumerate(zip(steps.scores, steps.weights, strict=True), start=1)
    ]
    terms = " + ".join(f"{weight:.3f} V_{i}" for i, weight in enumerate(steps.weights, start=1))
    lines.append(f"c_2 = {terms} = {vector(steps.context, 2).plain}")
    lines.append(f"[s_2; c_2] -> readout -> output layer -> softmax -> {TARGET[STEP]}")
    return Step(say["flow"], (), drawing="\n".join(lines))


def _times(weight: float, value: np.ndarray) -> Formula:
    written = f"{weight:.3f} × {vector(value, 2).plain}"
    return formula(written, written.replace("×", r"\times"))
