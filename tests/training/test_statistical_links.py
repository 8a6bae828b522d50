import json
import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_seq2seq_attn.probing import Gold, Links, alignment_error_rate, read_links, symmetrize
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import statistical_links as room
from hf_seq2seq_attn.training.hub import push
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.statistical_links import eflomal_links, statistical_links
from hf_seq2seq_attn.training.train import main, train

Text = list[list[str]]


def language_pair(pairs: int) -> tuple[Text, Text, list[Links]]:
    """Return sentences of 60 words, their word-by-word translations with neighbours swapped, and the true links."""
    draw = random.Random(4)
    sources, targets, links = [], [], []
    for _ in range(pairs):
        words = draw.sample(range(60), draw.randint(3, 9))
        order = list(range(len(words)))
        for place in range(0, len(words) - 1, 2):
            if draw.random() < 0.5:
                order[place : place + 2] = reversed(order[place : place + 2])
        sources.append([f"Q{word}" for word in words])
        targets.append([f"z{words[place]}" for place in order])
        links.append(frozenset((i, j) for j, i in enumerate(order)))
    return sources, targets, links


@pytest.fixture
def needs_eflomal() -> None:
    pytest.importorskip("eflomal")


@pytest.mark.usefixtures("needs_eflomal")
def test_known_links_are_found_and_every_line_kept(tmp_path: Path) -> None:
    sources, targets, links = language_pair(300)
    # Blank on either side, on both, first and last; one longer than eflomal takes; case and separators inside lines.
    extra: list[tuple[list[str], list[str]]] = [([], ["z1"]), (["q1"], []), ([], []), (["q2"] * 1024, ["z2"])]
    sources = [*(s for s, _ in extra), *sources, ["q5", "q7"], []]
    targets = [*(t for _, t in extra), *targets, ["Z5", "Z7"], []]
    gold, counts = statistical_links(sources, targets, tmp_path)
    assert len(gold) == len(sources) == counts.pairs == 306
    assert all(not gold[index].possible for index in (0, 1, 2, 3, 305))
    assert counts.unaligned == 5
    assert gold[304].possible == {(0, 0), (1, 1)}, "words are compared in lower case"
    true = [Gold(each, each) for each in links]
    assert alignment_error_rate([each.possible for each in gold[4:304]], true) < 0.05


@pytest.mark.usefixtures("needs_eflomal")
def test_directions_are_named_rightly_and_joined_by_the_method(tmp_path: Path) -> None:
    """A target of two words for each source word: only the reverse direction may leave one of them out."""
    sources, targets, _ = language_pair(200)
    doubled = [[part for word in words for part in (word, word + "x")] for words in targets]
    forward, reverse = eflomal_links(sources, doubled)
    assert all(len({j for _, j in links}) == len(links) for links in forward)
    assert all(len({i for i, _ in links}) == len(links) for links in reverse)
    assert sum(map(len, forward)) > 1.5 * sum(map(len, reverse))
    counts = {}
    for method in ("intersection", "union"):
        gold, record = statistical_links(sources, doubled, tmp_path, method)
        files = {name: read_links(tmp_path / f"{name}.align") for name in ("forward", "reverse", "symmetrized")}
        joined = [symmetrize(f, r, method) for f, r in zip(files["forward"], files["reverse"], strict=True)]
        assert joined == files["symmetrized"] == [each.possible for each in gold]
        counts[method] = record.links
        assert record.symmetrization == method
    assert counts["intersection"] < counts["union"]
    with pytest.raises(ValueError, match="allowed are intersection"):
        statistical_links(sources, doubled, tmp_path, "grow")


@pytest.mark.usefixtures("needs_eflomal")
def test_links_that_are_there_are_used_again_for_the_same_words_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, targets, _ = language_pair(40)
    made: list[int] = []

    def counting(s: Text, t: Text, null_prior: float) -> Any:
        made.append(len(s))
        return eflomal_links(s, t, null_prior)

    monkeypatch.setattr(room, "eflomal_links", counting)
    first, counts = statistical_links(sources, targets, tmp_path)
    record = (tmp_path / "links.json").read_text()
    with monkeypatch.context() as second_process:
        second_process.setenv("RANK", "1")
        assert statistical_links(sources, targets, tmp_path)[0] == first
    assert (tmp_path / "links.json").read_text() == record, "only the first process writes"
    again, reused = statistical_links(sources, targets, tmp_path)
    assert made == [40]
    assert again == first
    assert (reused.links, reused.seconds) == (counts.links, 0.0)
    statistical_links(sources[:-1], targets[:-1], tmp_path)
    assert made == [40, 39]
    # A file cut short by hand is no cache.
    path = tmp_path / "reverse.align"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    statistical_links(sources[:-1], targets[:-1], tmp_path)
    assert made == [40, 39, 39]
    # Nor are links that were made with another prior.
    _, other = statistical_links(sources[:-1], targets[:-1], tmp_path, null_prior=0.02)
    assert made == [40, 39, 39, 39] and other.null_prior == 0.02


def test_without_eflomal_one_line_says_what_to_install(
    toy_files: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "eflomal", None)
    overrides = [*toy_files(train=20, links=()), "alignment.links=eflomal", "tokenizer.vocab_size=100"]
    assert main(["bahdanau2015", *overrides, "-o", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("pip install 'hf-seq2seq-attn[eflomal]'")


@pytest.mark.usefixtures("needs_eflomal")
def test_a_run_makes_its_links_and_is_guided_by_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sources, targets, links = language_pair(300)
    for name, sentences in (("source", sources), ("target", targets)):
        for part, chosen in (("train", sentences[:280]), ("dev", sentences[280:])):
            (tmp_path / f"{part}.{name}").write_text("".join(" ".join(words) + "\n" for words in chosen))
    (tmp_path / "dev.links").write_text(
        "".join(" ".join(f"{i}-{j}" for i, j in sorted(each)) + "\n" for each in links[280:])
    )
    (tmp_path / "recipe.yaml").write_text(f"""\
data:
  train: {{source: {tmp_path}/train.source, target: {tmp_path}/train.target}}
  dev: {{source: {tmp_path}/dev.source, target: {tmp_path}/dev.target, links: {tmp_path}/dev.links}}
tokenizer: {{kind: word, vocab_size: 200}}
model: {{encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 32, dropout: 0.0, cross_attention_heads: 2, init_std: 0.3}}
training: {{max_steps: 60, learning_rate: 2e-2, lr_scheduler_type: constant}}
alignment: {{weight: 3, rows: input, links: eflomal, symmetrization: intersection}}
""")
    with caplog.at_level(logging.WARNING):
        metrics = train(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "run", progress=False).metrics
    assert metrics["links"]["symmetrization"] == "intersection"
    assert metrics["links"]["aligner"].startswith("eflomal ")
    assert metrics["links"]["links"] == sum(map(len, read_links(tmp_path / "run/links/symmetrized.align")))
    assert "by intersection" in caplog.text
    assert metrics["dev"]["aer"] < 0.2
    assert json.loads((tmp_path / "run/metrics.json").read_text())["links"] == metrics["links"]
    # They stay on this machine.
    plan = push(tmp_path / "run", "somebody/model", dry_run=True)
    assert ("links/", "links of the training text") in plan.left_out
    assert not any(name.startswith("links") for name, _ in plan.files)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["alignment.links=giza"], "alignment.links='giza': choose eflomal or null"),
        (["alignment.links=eflomal", "data.train.links=x"], "set one of the two to null"),
        (["alignment.links=eflomal", "alignment.symmetrization=grow"], "symmetrization='grow': choose one of"),
        (["alignment.symmetrization=union", "data.train.links=x"], "is for links made on the spot"),
        (["alignment.weight=1"], "set alignment.links=eflomal"),
    ],
)
def test_recipes_that_cannot_be_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_recipe("bahdanau2015", overrides)
