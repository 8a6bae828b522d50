from collections.abc import Callable
from typing import Any

import pytest

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.validation import Validator

STEPS = 8
PEAK = 0.02

Run = Callable[..., dict[str, Any]]


def rates(metrics: dict[str, Any]) -> list[float]:
    return [entry["learning_rate"] for entry in metrics["history"] if "learning_rate" in entry]


def rising(step: int) -> float:
    return step / 3


SHAPES: dict[str, tuple[dict[str, Any], Callable[[int], float]]] = {
    "linear": ({}, lambda t: rising(t) if t < 3 else (STEPS - t) / 5),
    "constant": ({}, lambda t: 1.0),
    "constant_with_warmup": ({}, lambda t: min(rising(t), 1)),
    "inverse_sqrt": ({}, lambda t: min(rising(t), (3 / max(t, 1)) ** 0.5)),
    "polynomial": (
        {"power": 2.0, "lr_end": 0.002},
        lambda t: rising(t) if t < 3 else 0.9 * ((STEPS - t) / 5) ** 2 + 0.1,
    ),
    "cosine": ({}, lambda t: rising(t) if t < 3 else (1 + COS[t]) / 2),
    "cosine_with_restarts": ({"num_cycles": 1}, lambda t: rising(t) if t < 3 else (1 + COS[t]) / 2),
    "cosine_with_min_lr": ({"min_lr": 0.002}, lambda t: rising(t) if t < 3 else 0.9 * (1 + COS[t]) / 2 + 0.1),
    # This one is a step ahead of the others.
    "cosine_warmup_with_min_lr": (
        {"min_lr_rate": 0.1},
        lambda t: rising(t + 1) if t < 3 else 0.9 * (1 + COS[t + 1]) / 2 + 0.1,
    ),
    "warmup_stable_decay": (
        {"num_decay_steps": 2, "decay_type": "linear"},
        lambda t: rising(t) if t < 3 else 1.0 if t < 6 else (STEPS - t) / 2,
    ),
}
COS = {3: 1.0, 4: 0.8090169943749475, 5: 0.30901699437494745, 6: -0.30901699437494745, 7: -0.8090169943749475, 8: -1.0}


@pytest.mark.parametrize("kind", SHAPES)
def test_the_schedules_of_hugging_face_by_recipe(train_toy: Run, kind: str) -> None:
    settings, shape = SHAPES[kind]
    given = ", ".join(f"{name}: {value}" for name, value in settings.items())
    kwargs = [f"training.lr_scheduler_kwargs={{{given}}}"] if settings else []
    choice = [f"training.lr_scheduler_type={kind}", f"training.learning_rate={PEAK}", "training.warmup_steps=3"]
    metrics = train_toy(*choice, *kwargs, f"training.max_steps={STEPS}", train=9)
    assert rates(metrics) == pytest.approx([PEAK * shape(step) for step in range(STEPS)], abs=1e-9)


@pytest.mark.parametrize(("kind", "metric"), [("plateau", "loss"), ("plateau", "chrf"), ("greedy", "chrf")])
def test_schedules_by_a_metric_know_its_direction(
    train_toy: Run, monkeypatch: pytest.MonkeyPatch, kind: str, metric: str
) -> None:
    worse = iter([1.0, 2.0, 3.0, 4.0] if metric == "loss" else [4.0, 3.0, 2.0, 1.0])
    monkeypatch.setattr(Validator, "__call__", lambda *_: {metric: next(worse)})
    name, settings = {
        "plateau": ("reduce_lr_on_plateau", "{factor: 0.5, patience: 0}"),
        "greedy": ("greedy", "{factor: 0.5, patience: 0, min_lr: 1e-6}"),
    }[kind]
    choice = [f"training.lr_scheduler_type={name}", f"training.lr_scheduler_kwargs={settings}"]
    validated = ["training.eval_strategy=steps", "training.eval_steps=1", "validation={metrics: [chrf]}"]
    selection = [f"selection={{metric: {metric}}}", f"training.learning_rate={PEAK}"]
    metrics = train_toy(*choice, *validated, *selection, train=9, dev=3)
    # Each value worse than the one before halves the rate of the steps after it; greedy doubles it for a better one.
    expected = [1, 1, 0.5, 0.25] if kind == "plateau" else [1, 2, 1, 0.5]
    assert rates(metrics) == pytest.approx([PEAK * part for part in expected])


def test_the_schedule_of_vaswani_2017(train_toy: Run) -> None:
    factor, width, warmup = 0.7, 16, 3
    form = ["schedule={factor: 0.7}", f"training.warmup_steps={warmup}", f"training.max_steps={STEPS}"]
    paper = [factor * width**-0.5 * min(t**-0.5, t * warmup**-1.5) for t in range(1, STEPS + 1)]
    assert rates(train_toy(*form, train=9)) == pytest.approx(paper)
    # Hugging Face's form at the paper's peak is the same, one step later.
    peak = factor * (width * warmup) ** -0.5
    same = ["training.lr_scheduler_type=inverse_sqrt", f"training.learning_rate={peak}", *form[1:]]
    assert rates(train_toy(*same, train=9)) == pytest.approx([0, *paper[:-1]])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.lr_scheduler_type=cosine", "training.lr_scheduler_kwargs={cycles: 2}"], "cosine.*cycles"),
        (["training.lr_scheduler_type=warmup_stable_decay"], "warmup_stable_decay.*num_decay_steps"),
        (["training.lr_scheduler_type=reduce_lr_on_plateau"], "requires an eval strategy"),
        (["training.lr_scheduler_type=sometimes"], "training section of the recipe: .*sometimes"),
    ],
)
def test_schedules_that_cannot_be_are_refused_before_the_run(
    train_toy: Run, overrides: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train_toy(*overrides, train=9)
