"""The sentences of a walk-through, in English and in Chinese. `{names}` are filled with numbers and tokens."""

LANGUAGES = ("en", "zh")

PHRASES: dict[str, dict[str, str]] = {
    "en": {
        "title": "What the decoder does after {token}",
        "encode": "Encode",
        "encode.text": "Each source token becomes a state of {width} numbers.",
        "project": "Query, keys, values",
        "project.text": (
            "The decoder has read {read}; its state {s} = {state} becomes the query {q} = {query} (head {head} of "
            "{heads}, decoder layer {layer}, both from 0). Each {h} becomes a key {k} and a value {v}."
        ),
        "score": "Score",
        "score.dot": "{formula}, the query times each key{scale}.",
        "score.dot.scaled": ", divided by the root of the key's width",
        "score.dot.unscaled": "; this model does not scale",
        "score.additive": "{formula}, a small network with the learned vector v = {vector}.",
        "score.column": "score",
        "weigh": "Softmax",
        "weigh.text": "Exponentials divided by their sum, {total}.",
        "weigh.shift": (
            " The highest score, {shift}, is first taken from each, so that the numbers stay small; the weights are "
            "the same."
        ),
        "weigh.column": "weight",
        "sum": "Context",
        "sum.text": "{formula} = {context}{together}.",
        "sum.together": "; all {heads} heads together: {context}",
        "sum.weighted": "weight × value",
        "predict": "Fuse and predict",
        "predict.fuse": "State and context ({fusion}) give {fused}",
        "predict.top": "; output layer and softmax make of it:",
        "predict.below": "; this is what the layer above reads. The top layer ends in:",
        "predict.column.token": "next token",
        "predict.column.share": "probability",
        "predict.truth": "The true next token is {token}: cross-entropy {loss}.",
        "folded": "Vectors of more than {shown} numbers are folded: the first {shown}, then how many there are.",
        "checked": (
            "Steps 2 to 5 and the prediction were computed again in float64 from the model's weights and what it read; "
            "the largest difference from the model's own weights, context and logits is {difference}."
        ),
    },
    "zh": {
        "title": "解码器读完 {token} 之后做了什么",
        "encode": "编码",
        "encode.text": "每个源词元变成一个隐藏状态，共 {width} 个数。",
        "project": "构建 Query、Key、Value",
        "project.text": (
            "解码器已读入 {read}；当前状态 {s} = {state} 变换为查询 {q} = {query}（第 {head} 头，共 {heads} 头；"
            "解码器第 {layer} 层；均从 0 数起）。每个 {h} 变换为键 {k} 和值 {v}。"
        ),
        "score": "注意力评分",
        "score.dot": "{formula}：查询与每个键做点积{scale}。",
        "score.dot.scaled": "，再除以键的维度的平方根",
        "score.dot.unscaled": "；此模型不缩放",
        "score.additive": "{formula}：一个小型网络，可学习向量 v = {vector}。",
        "score.column": "评分",
        "weigh": "Softmax 归一化",
        "weigh.text": "指数除以它们的和 {total}。",
        "weigh.shift": "先从每个评分中减去最高分 {shift}，使数字不致过大；权重不变。",
        "weigh.column": "权重",
        "sum": "上下文向量",
        "sum.text": "{formula} = {context}{together}。",
        "sum.together": "；全部 {heads} 头合并：{context}",
        "sum.weighted": "权重 × 值",
        "predict": "融合并预测",
        "predict.fuse": "状态与上下文融合（{fusion}）得到 {fused}",
        "predict.top": "；经输出层与 softmax：",
        "predict.below": "；这是上一层读入的内容。最上层给出：",
        "predict.column.token": "下一个词元",
        "predict.column.share": "概率",
        "predict.truth": "真实的下一个词元是 {token}：交叉熵 {loss}。",
        "folded": "超过 {shown} 个数的向量只写前 {shown} 个，再写总数。",
        "checked": (
            "第 2 至 5 步与预测都由模型权重和它读到的状态以 float64 重新计算；"
            "与模型自身的权重、上下文和 logits 的最大差别为 {difference}。"
        ),
    },
}
