"""The classroom's corpus has right links, and its model looks at *love* to say 喜."""

from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path

import pytest

from hf_seq2seq_attn.probing import read_links, walk_through
from hf_seq2seq_attn.training.classroom_corpus import LESSON, PARTS, examples, main, prepare_classroom_corpus
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.train import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classroom")
    prepare_classroom_corpus(folder)
    return folder


def test_links_stay_inside_and_link_the_same_words_the_same_way() -> None:
    partners: dict[str, Counter] = defaultdict(Counter)
    for example in islice(examples(seed=3), 600):
        assert all(0 <= i < len(example.english) and 0 <= j < len(example.chinese) for i, j in example.links)
        linked = {j for _, j in example.links}
        assert linked == set(range(len(example.chinese))), "every character has a source"
        for i, word in enumerate(example.english):
            partners[word]["".join(example.chinese[j] for j in sorted(j for k, j in example.links if k == i))] += 1
    assert partners["love"] == partners["loves"] | Counter({"喜欢": partners["love"]["喜欢"]}) and set(
        partners["loves"]
    ) == {"喜欢"}
    assert set(partners["cats"]) == {"猫"} and set(partners["not"]) == {"不"} and set(partners["today"]) == {"今天"}
    assert set(partners["do"]) == {"", "吗"}, "without a partner in a negation, 吗 in a question"
    assert set(partners["two"]) == {"两只", "两匹", "两个", "两块", "两本", "两朵", "两盏", "两张"}


def test_an_alignment_is_no_diagonal() -> None:
    crossing = 0
    for example in islice(examples(seed=4), 200):
        links = sorted(example.links)
        crossing += any(a[0] < b[0] and a[1] > b[1] for a in links for b in links)
    assert crossing > 100


def test_parts_share_no_sentence_and_the_lesson_is_unseen(folder: Path) -> None:
    parts = {part: (folder / f"{part}.en").read_text(encoding="utf-8").splitlines() for part in PARTS}
    assert {part: len(lines) for part, lines in parts.items()} == PARTS
    assert parts["test"][0] == LESSON and LESSON not in parts["train"] + parts["dev"]
    everything = [line for lines in parts.values() for line in lines]
    assert len(set(everything)) == len(everything)
    assert (folder / "test.zh").read_text(encoding="utf-8").splitlines()[0] == "我 喜 欢 猫"
    assert read_links(folder / "test.align")[0] == {(0, 0), (1, 1), (1, 2), (2, 3)}


def test_it_is_made_once_and_always_the_same(folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert main(["-o", str(folder)]) == 0
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    prepare_classroom_corpus(tmp_path / "again")
    for name in before:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_its_model_looks_at_love_to_say_it(folder: Path, tmp_path: Path) -> None:
    """The shipped recipe, cut to what a test may take: nobody told the model what to look at."""
    overrides = ["training.max_steps=250", "prepare=null", "training.per_device_train_batch_size=32"]
    for part, keys in (("train", ("source", "target")), ("dev", ("source", "target", "links"))):
        for key, suffix in zip(keys, ("en", "zh", "align"), strict=False):
            overrides.append(f"data.{part}.{key}={folder / f'{part}.{suffix}'}")
    result = train(load_recipe("classroom", [*overrides, "data.test=null"]), tmp_path / "run", progress=False)
    assert result.metrics["dev"]["chrf"] > 80
    walk = walk_through(result.model, result.tokenizer, LESSON, "我 喜 欢 猫", row=1)
    assert walk.true_token is not None and walk.true_token.endswith("喜") and walk.top[0][0] == walk.true_token
    assert walk.steps.weights.argmax() == 1, walk.source_tokens
