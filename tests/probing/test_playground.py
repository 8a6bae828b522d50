"""The page to play with: its script computes what the modules compute, and the page around it behaves."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_seq2seq_attn import AdditiveAttention
from hf_seq2seq_attn.cross_attention import additive_scores_reference
from hf_seq2seq_attn.probing import playground_page, worked_updates
from hf_seq2seq_attn.probing.attention_parts import AttentionParts, Projection
from hf_seq2seq_attn.probing.attention_steps import attention_steps
from hf_seq2seq_attn.probing.playground import SCORINGS
from hf_seq2seq_attn.probing.playground_phrases import PLAYGROUND_PHRASES
from hf_seq2seq_attn.probing.worked_example import (
    ENCODER,
    FUSIONS,
    SOURCE,
    STATE,
    readable_fusion,
    with_identity_projections,
)

NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed; the script is run by it")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; the page is opened in it")
LEARNT = ("W_Q", "W_K", "W_V", "v")


def script(page: str, name: str) -> str:
    """Return the text of one of the page's scripts."""
    found = re.search(rf'<script (?:type="application/json" )?id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found
    return found[1]


def start_of(page: str) -> dict[str, Any]:
    return json.loads(script(page, "start"))


def run_in_node(expression: str, data: object) -> Any:
    """Return what an expression over `data` is, after the arithmetic of the page."""
    assert NODE is not None
    program = script(playground_page(), "arithmetic") + (
        f'\nconst data = JSON.parse(require("fs").readFileSync(0, "utf8"));\nconsole.log(JSON.stringify({expression}));'
    )
    done = subprocess.run(
        [NODE, "-e", program], input=json.dumps(data), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def drawn(seed: int) -> dict[str, Any]:
    """Return random numbers to start from; the second half of the seeds has scores beyond e^80."""
    draw = np.random.default_rng(seed)
    spread = 1.5 if seed < 12 else 12.0
    shapes = {"state": 2, "encoder": (3, 2), "W_Q": (2, 2), "W_K": (2, 2), "W_V": (2, 2), "v": 2, "output": (6, 2)}
    numbers = {name: draw.normal(scale=spread, size=shape).tolist() for name, shape in shapes.items()}
    return numbers | {
        "scoring": SCORINGS[seed % 3],
        "fusion": FUSIONS[seed // 3 % 3],
        "truth": int(draw.integers(6)),
        "rate": float(draw.uniform(0.1, 3)),
    }


def by_numpy(numbers: dict[str, Any]) -> Any:
    """Return steps 2 to 5 of the package, in float64."""
    query, key, value = (Projection(np.array(numbers[name]), np.zeros(2)) for name in ("W_Q", "W_K", "W_V"))
    parts = AttentionParts(
        query=query, key=key, value=value, output=None, heads=1,
        scale=1 / np.sqrt(2) if numbers["scoring"] == "scaled_dot_product" else 1.0,
        score_vector=np.array([numbers["v"]]) if numbers["scoring"] == "additive" else None,
        null_key=None, null_value=None, precision=np.finfo(float).eps,
    )  # fmt: skip
    return attention_steps(parts, np.array(numbers["state"]), np.array(numbers["encoder"]))[0]


def by_torch(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return step 6, the loss and, by autograd, its gradients, in float64."""
    tensors = {
        name: torch.tensor(each, dtype=torch.float64) for name, each in numbers.items() if isinstance(each, list)
    }
    learnt = [tensors[name].requires_grad_() for name in LEARNT]
    state, encoder = tensors["state"][None], tensors["encoder"]
    query, keys, values = state @ learnt[0], encoder @ learnt[1], encoder @ learnt[2]
    if numbers["scoring"] == "additive":
        scores = additive_scores_reference(query[None, None], keys[None, None], learnt[3][None])[0, 0]
    else:
        scores = query @ keys.T / (2**0.5 if numbers["scoring"] == "scaled_dot_product" else 1)
    context = torch.softmax(scores, -1) @ values
    fusion = readable_fusion_in_float64(numbers["fusion"])
    logits = fusion(state, context) @ tensors["output"].T
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([numbers["truth"]]))
    slopes = torch.autograd.grad(loss, learnt, materialize_grads=True, allow_unused=True)
    return {
        "fused": fusion.combine(state, context)[0],
        "readout": fusion(state, context)[0],
        "probabilities": torch.softmax(logits, -1)[0],
        "loss": loss,
        "gradients": dict(zip(LEARNT, slopes, strict=True)),
    }


def readable_fusion_in_float64(kind: str) -> Any:
    with torch.no_grad():
        return readable_fusion(kind).double()


def assert_near(found: object, wanted: Any) -> None:
    wanted = wanted.detach().numpy() if isinstance(wanted, torch.Tensor) else np.asarray(wanted)
    np.testing.assert_allclose(np.array(found, dtype=float), wanted, rtol=1e-9, atol=1e-9)


# The arithmetic


@needs_node
def test_the_script_computes_what_the_modules_compute() -> None:
    inputs = [drawn(seed) for seed in range(20)]
    results = run_in_node("data.map((numbers) => compute(numbers))", inputs)
    shifts = 0
    for numbers, result in zip(inputs, results, strict=True):
        steps, ending = by_numpy(numbers), by_torch(numbers)
        for name in ("query", "keys", "values", "raw", "scores", "exponentials", "weights", "weighted", "context"):
            assert_near(result[name], getattr(steps, name))
        for name in ("scale", "shift", "total"):
            assert result[name] == pytest.approx(getattr(steps, name), rel=1e-9)
        assert (result["hidden"] is None) == (steps.hidden is None)
        if steps.hidden is not None:
            assert_near(result["hidden"], steps.hidden)
        for name in ("fused", "readout", "probabilities", "loss"):
            assert_near(result[name], ending[name])
        for name in LEARNT:
            assert_near(result["gradients"][name], ending["gradients"][name])
        shifts += steps.shift != 0
    assert 0 < shifts < 20
    assert any(np.abs(result["gradients"]["v"]).max() > 1e-3 for result in results)


@needs_node
def test_its_steps_are_the_updates_of_the_worked_example() -> None:
    start = start_of(playground_page())["numbers"]
    taken = run_in_node("[0, 1, 2, 3].reduce((all) => [...all, learn(all.at(-1))], [data])", start)
    results = run_in_node("data.map((numbers) => compute(numbers))", taken)
    learning = worked_updates(updates=4)
    for update, (numbers, result) in enumerate(zip(taken, results, strict=True)):
        assert result["loss"] == pytest.approx(learning.losses[update], abs=1e-6)
        for place, name in enumerate(("W_Q", "W_K", "W_V")):
            np.testing.assert_allclose(numbers[name], learning.matrices[update, place], atol=1e-5)
            np.testing.assert_allclose(result["gradients"][name], learning.gradients[update, place], atol=1e-5)
        np.testing.assert_allclose(result["weights"], learning.weights[update], atol=1e-5)
    assert start == taken[0], "learning leaves the numbers it was given as they were"


@needs_node
def test_additive_gradients_are_those_of_the_module() -> None:
    with torch.no_grad():
        attention = with_identity_projections(AdditiveAttention(2, 2, 2).eval())
    assert isinstance(attention, AdditiveAttention) and attention.v_proj is not None
    fusion = readable_fusion_in_float64("gate").float()
    start = start_of(playground_page())["numbers"] | {"scoring": "additive", "fusion": "gate"}
    query, states = torch.tensor([[STATE]]), torch.tensor([ENCODER])
    context, _ = attention(query, attention.remember(states))
    loss = torch.nn.functional.cross_entropy(
        torch.tensor(start["output"]) @ fusion(query, context)[0, 0], torch.tensor(start["truth"])
    )
    weights = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight, attention.score_vector]
    slopes = torch.autograd.grad(loss, weights)
    result = run_in_node("compute(data)", start)
    assert result["loss"] == pytest.approx(loss.item(), abs=1e-6)
    for name, slope in zip(LEARNT, slopes, strict=True):
        np.testing.assert_allclose(
            result["gradients"][name], slope[0] if name == "v" else slope.T, atol=1e-6, err_msg=name
        )


# The page


class Elements(HTMLParser):
    """Collect the start tags of a page with their attributes, and check that tags nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_is_whole_and_every_field_has_a_name(lang: str) -> None:
    page = playground_page(lang=lang)
    elements = Elements(page).found
    assert ("html", {"lang": lang}) in elements
    assert "{{" not in page and "http" not in page
    assert not any({"src", "href"} & set(attributes) for _, attributes in elements)
    fields = [attributes for tag, attributes in elements if tag == "input" and attributes["type"] == "text"]
    labels = [attributes["aria-label"] for attributes in fields]
    # State, encoder, three matrices, v, output layer, learning rate.
    assert len(fields) == 2 + 6 + 12 + 2 + 12 + 1 and len(set(labels)) == len(labels) and all(labels)
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    behaviour = script(page, "behaviour")
    wanted = set(re.findall(r'(?:byId|put|rows|byWord)\("([\w-]+)"', behaviour))
    assert {"step", "loss", "weighed", "history"} <= wanted <= set(ids)
    numbers = start_of(page)["numbers"]
    for field in fields:
        value: Any = numbers
        for key in (field["data-path"] or "").split():
            value = value[int(key) if key.isdigit() else key]
        assert isinstance(value, float)


def test_it_starts_from_the_numbers_given() -> None:
    numbers = start_of(playground_page())["numbers"]
    assert numbers["state"] == list(STATE) and numbers["encoder"] == [list(row) for row in ENCODER]
    moved = start_of(playground_page((0.2, -0.9), ((1, 2), (3, 4), (5, 6))))["numbers"]
    assert moved["state"] == [0.2, -0.9] and moved["encoder"][2] == [5.0, 6.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0.1,),), "2 numbers"),
        ((STATE, ((1, 2),)), "pair for each"),
        (((float("nan"), 0.1),), "does not lie in"),
        (((0.1, -2e6),), "does not lie in"),
        ((STATE, ENCODER, "fr"), "lang is 'fr'"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        playground_page(*arguments)


def test_both_languages_say_the_same_things() -> None:
    english, chinese = (PLAYGROUND_PHRASES[lang] for lang in ("en", "zh"))
    assert english.keys() == chinese.keys()
    for key, phrase in english.items():
        assert set(re.findall(r"\{\w+\}", phrase)) == set(re.findall(r"\{\w+\}", chinese[key])), key
        assert re.search("[\u4e00-\u9fff]", chinese[key]) or key == "logit", key
    behaviour = script(playground_page(), "behaviour")
    assert set(re.findall(r"say\.(\w+)", behaviour)) | set(re.findall(r'say\["([\w.]+)"\]', behaviour)) <= set(english)


def in_chromium(folder: Path, actions: str) -> Any:
    """Open the page, run the actions in it, return the JSON value that they return."""
    assert CHROMIUM is not None
    driver = f"""<script>
const type = (id, text) => {{ const field = byId(id); field.value = text; field.dispatchEvent(new Event("input")); }};
const press = (id, key, more) =>
  byId(id).dispatchEvent(new KeyboardEvent("keydown", {{ key, cancelable: true, ...more }}));
const cells = (id) => [...byId(id).rows].map((row) => [...row.cells].map((cell) => cell.textContent));
const text = (id) => byId(id).textContent;
let seen;
try {{ seen = (() => {{ {actions} }})(); }} catch (error) {{ seen = {{ error: String(error) }}; }}
const kept = document.createElement("script");
kept.type = "application/json";
kept.id = "seen";
kept.textContent = JSON.stringify(seen).replaceAll("<", "\\\\u003c");
document.body.append(kept);
</script>"""
    path = folder / "page.html"
    path.write_text(playground_page().replace("</body>", driver + "</body>"), encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    seen = json.loads(script(done.stdout, "seen"))
    assert "error" not in seen, seen
    return seen


@needs_chromium
def test_every_step_follows_what_is_typed(tmp_path: Path) -> None:
    seen = in_chromium(
        tmp_path,
        """
        const seen = { before: cells("weighed"), hand: text("by-hand") };
        type("state-0", "0.2"); type("state-1", "０．９");
        seen.typed = { weights: cells("weighed"), most: text("most"), context: text("context") };
        press("state-0", "ArrowUp"); press("state-1", "ArrowDown", { shiftKey: true });
        seen.arrows = [byId("state-0").value, byId("state-1").value];
        type("encoder-1-0", "1,5");
        seen.wrong = { said: text("wrong"), invalid: byId("encoder-1-0").getAttribute("aria-invalid"),
          stale: byId("results").className, disabled: byId("step").disabled, weights: cells("weighed") };
        type("encoder-1-0", "2e6"); seen.large = text("wrong");
        type("encoder-1-0", ""); seen.empty = text("wrong");
        type("encoder-1-0", "\\u22120.5");
        seen.right = { said: text("wrong"), stale: byId("results").className, encoded: cells("encoded")[1][2] };
        type("rate", "0"); seen.rate = text("wrong");
        byId("reset").click();
        seen.reset = { weights: cells("weighed"), said: text("wrong"), state: byId("state-0").value };
        byId("scoring-additive").click();
        seen.additive = { weights: cells("weighed"), vector: byId("v-0").closest("fieldset").hidden };
        byId("fusion-gate").click();
        seen.gate = { gate: text("gate"), fused: text("fused") };
        return seen;
        """,
    )
    assert [row[2] for row in seen["before"]] == ["0.356", "0.327", "0.318"] and "[0.450, 0.551]" in seen["hand"]
    h = np.array(ENCODER)
    weights = np.exp(h @ [0.2, 0.9] / np.sqrt(2))
    weights /= weights.sum()
    assert [row[2] for row in seen["typed"]["weights"]] == [f"{weight:.3f}" for weight in weights]
    assert seen["typed"]["most"] == f"Most attention: cats ({weights[2]:.3f})."
    context = weights @ h
    assert seen["typed"]["context"].startswith(f"[{context[0]:.3f}, {context[1]:.3f}]")
    assert seen["arrows"] == ["0.3", "0.89"]
    wrong = seen["wrong"]
    assert "love, number 1: “1,5” is not a number" in wrong["said"] and "last valid numbers" in wrong["said"]
    assert (wrong["invalid"], wrong["stale"], wrong["disabled"]) == ("true", "stale", True)
    assert "too large; allowed is −1000000 to 1000000" in seen["large"] and "empty" in seen["empty"]
    assert seen["right"] == {"said": "", "stale": "", "encoded": "[−0.500, 0.700]"}
    assert "must be above 0" in seen["rate"]
    assert seen["reset"] == {"weights": seen["before"], "said": "", "state": "0.6"}
    assert [row[2] for row in seen["additive"]["weights"]] == ["0.306", "0.356", "0.338"]
    assert seen["additive"]["vector"] is False
    assert seen["gate"]["gate"].startswith("[0.7") and "," in seen["gate"]["fused"]


@needs_chromium
def test_the_button_takes_steps_of_gradient_descent(tmp_path: Path) -> None:
    seen = in_chromium(
        tmp_path,
        """
        const seen = { said: text("step"), gradients: cells("gradients") };
        byId("step").click(); byId("step").click();
        seen.two = { history: cells("history"), matrix: [byId("W_V-0-0").title, byId("W_V-0-1").title],
          field: byId("W_V-0-0").value };
        byId("undo").click(); seen.one = cells("history");
        byId("steps").click(); byId("steps").click(); seen.many = cells("history");
        byId("reset").click();
        // State and context cancel out, so that tanh lets the whole gradient through.
        [["state-0", "-0.9"], ["state-1", "-1.1"], ["encoder-0-0", "1.8"], ["encoder-0-1", "0.2"],
          ["encoder-1-0", "0.6"], ["encoder-1-1", "1.4"], ["encoder-2-0", "0.2"], ["encoder-2-1", "1.8"],
          ["rate", "1e6"]].forEach((each) => type(...each));
        byId("truth").value = "1"; byId("truth").dispatchEvent(new Event("change"));
        byId("step").click();
        seen.far = { said: text("wrong"), button: text("step"), matrix: byId("W_V-0-0").value,
          history: cells("history").length };
        return seen;
        """,
    )
    learning = worked_updates(updates=21)
    assert seen["said"] == "One step towards 喜"
    assert [row[0] for row in seen["gradients"]] == ["WQ", "WK", "WV"]
    slope = learning.gradients[0, 2]
    written = ", ".join("[" + ", ".join(f"{value:.3f}".replace("-", "−") for value in row) + "]" for row in slope)
    assert seen["gradients"][2][1] == f"[{written}]"

    def lines(updates: list[int]) -> list[list[str]]:
        columns = (learning.losses, learning.probabilities, *learning.weights.T)
        return [[str(update), *(f"{column[update]:.3f}" for column in columns)] for update in updates]

    assert seen["two"]["history"] == lines([0, 1, 2]) and seen["one"] == lines([0, 1])
    np.testing.assert_allclose([float(value) for value in seen["two"]["matrix"]], learning.matrices[2, 2, 0], atol=1e-5)
    assert seen["two"]["field"] == f"{learning.matrices[2, 2, 0, 0]:.3f}".rstrip("0")
    assert seen["many"] == lines([0, *range(11, 22)])
    assert "beyond 1000000" in seen["far"].pop("said")
    assert seen["far"] == {"button": "One step towards 我", "matrix": "1", "history": 1}


# The command


def test_the_command_writes_the_page(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    command = ("explain", "--example", "--interactive", "--state", "0.2,0.9", "--lang", "zh", "-o", "page.html")
    assert run(*command) == (0, "", "")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page == playground_page((0.2, 0.9), lang="zh") and SOURCE[1] in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--example",), "-o is None; name a file.html"),
        (("--example", "-o", "page.md"), "-o is page.md; name a file.html"),
        (("--example", "-o", "page.html", "--state", "0.2"), "2 numbers"),
        (("--example", "-o", "page.html", "--updates", "3"), "leave out --format, --updates"),
        (("-o", "page.html"), "give --example too"),
    ],
)
def test_a_wrong_command_is_explained(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, words: tuple, message: str
) -> None:
    code, out, err = run("explain", "--interactive", *words)
    assert (code, out) == (2, "") and message in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []
