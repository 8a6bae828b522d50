"""What users of training tools report in public, tried on ours; each test names the thread it comes from."""

import json
import logging
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from guided_toys import FOREIGN, guided_model
from probes import planted
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast, Seq2SeqTrainer
from transformers.utils import logging as hf_logging

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.probing import (
    AlignmentChoice,
    align,
    alignment_error_rate,
    default_rows,
    read_gold,
    saved_choice,
    to_word_links,
)
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.data import project_links
from hf_seq2seq_attn.training.guided_attention import GuidedAttention, GuidedAttentionMixin
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.scoring import score_translations
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer

Run = Callable[..., dict[str, Any]]
MakeTrainer = Callable[..., Any]


def test_scores_are_those_of_sacrebleus_own_command(tmp_path: Path) -> None:
    """evaluate #315, #565: BLEU that fetches a script. Ours needs no network (the tests run without one), takes plain
    strings as references, and scores an empty hypothesis."""
    hypotheses = ["the cat sat on the mat .", "", "a dog , too", "it rained the whole day long"]
    references = ["the cat is on the mat .", "nothing at all", "a dog too", "it rained all day long"]
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    command = [sys.executable, "-m", "sacrebleu", tmp_path / "references", "-i", tmp_path / "hypotheses"]
    command += ["-m", "bleu", "chrf", "--tokenize", "none", "--force", "-w", "3"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = {each["name"].lower(): each for each in json.loads(printed)}
    found = score_translations(hypotheses, references, ("bleu", "chrf"))
    assert found["bleu"] == pytest.approx(wanted["bleu"]["score"], abs=1e-3) and 0 < found["bleu"] < 100
    assert found["chrf"] == pytest.approx(wanted["chrf2"]["score"], abs=1e-3)
    assert "tok:none" in found["bleu_signature"] and "nc:6" in found["chrf_signature"]


def test_evaluation_of_batches_of_unequal_outputs(train_toy: Run) -> None:
    """transformers #22634, #31110: -100 reaches the tokenizer. The last batch is short, and lengths differ."""
    metrics = train_toy(
        *("training.predict_with_generate=true", "training.per_device_eval_batch_size=4", "training.max_steps=2"),
        *("training.eval_strategy=steps", "training.eval_steps=1", "validation={metrics: [chrf, bleu], beams: 2}"),
        train=24,
        dev=9,
    )
    evaluated = [entry for entry in metrics["history"] if "eval_chrf" in entry]
    assert len(evaluated) == 2 and all(entry[key] >= 0 for entry in evaluated for key in ("eval_chrf", "eval_bleu"))
    assert metrics["dev"]["pairs"] == 9 and metrics["dev"]["loss"] > 0


def test_references_of_forty_tokens_can_be_reached(
    train_toy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers #10032, #30361: evaluation cut at the library's 20 tokens, in silence."""
    draw = random.Random(3)
    lines = [" ".join(draw.choices(("ab", "cd", "ef"), k=39)) for _ in range(6)]
    files = []
    for part in ("train", "dev"):
        for name in ("source", "target"):
            (tmp_path / f"long.{part}.{name}").write_text("".join(line + "\n" for line in lines))
            files.append(f"data.{part}.{name}={tmp_path / f'long.{part}.{name}'}")
    longest: list[int] = []
    plain = Seq2SeqAttnForConditionalGeneration.generate

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = plain(self, *args, **kwargs)
        longest.append(getattr(output, "sequences", output).shape[1] - 1)
        return output

    monkeypatch.setattr(Seq2SeqAttnForConditionalGeneration, "generate", watched)
    metrics = train_toy(*files, "data.max_target_length=60", "training.max_steps=1", "model.init_std=1.0")
    assert max(longest) >= 40
    card = (metrics["folder"] / "README.md").read_text()
    assert "Translations are of 4 beam(s), and of at most 2 times the source's tokens plus 10." in card


def test_each_measure_has_one_row_in_the_card(train_toy: Run) -> None:
    names = "[chrf, bleu, wer, per, exact_match, word_error_rate]"
    metrics = train_toy("training.max_steps=1", f"validation={{metrics: {names}}}", train=20, dev=5)
    card = (metrics["folder"] / "README.md").read_text()
    rows = [line.split("|")[1].strip() for line in card.splitlines() if line.startswith("| ")]
    assert len(rows) == len(set(rows)) == 1 + 7
    assert card.count("- type: wer") == card.count("- type: exact_match") == 1


def test_a_card_written_by_hand_is_not_replaced_unasked(train_toy: Run, tmp_path: Path) -> None:
    """transformers #13528, sentence-transformers PR #2718: cards that a tool overwrites."""
    (tmp_path / "cloned").mkdir()
    card = tmp_path / "cloned" / "README.md"
    card.write_text("by hand\n")
    with pytest.raises(InputError, match=r"already holds a README\.md, which the run's card would replace; .*overwrit"):
        train_toy("training.max_steps=1", folder="cloned", train=20)
    assert card.read_text() == "by hand\n" and sorted(tmp_path.glob("cloned/*")) == [card]

    finished = train_toy("training.max_steps=1", folder="finished", train=20)["folder"] / "README.md"
    finished.write_text(finished.read_text() + "\nSeen by a human.\n")
    with pytest.raises(InputError, match="already holds a model"):
        train_toy("training.max_steps=1", folder="finished", train=20)
    assert finished.read_text().endswith("Seen by a human.\n")


def test_the_same_seed_gives_the_same_curve_and_pictures(train_toy: Run) -> None:
    settings = ["model.dropout=0.3", "training.eval_strategy=steps", "training.eval_steps=2"]
    same, again, other = (train_toy(*settings, f"training.seed={seed}", train=40, dev=9) for seed in (7, 7, 8))
    losses = [[(e.get("loss"), e.get("eval_loss")) for e in run["history"]] for run in (same, again, other)]
    assert losses[0] == losses[1] != losses[2]
    for name in ("attention.png", "curve.png"):
        pictures = [(run["folder"] / name).read_bytes() for run in (same, again, other)]
        assert pictures[0] == pictures[1] != pictures[2], name
    assert "seed 8" in (other["folder"] / "README.md").read_text()


def test_padding_is_never_generated(train_toy: Run, tmp_path: Path) -> None:
    """transformers #7719, PR #4290 (Marian): padding was never a label, and must never be said, not even where its
    score is the highest; tied tables make that 0 from the beginning, and all others may fall below."""
    folder = train_toy("training.max_steps=0", train=20)["folder"]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    with torch.no_grad():
        model.lm_head.weight[pad] = 50 * model.lm_head.weight[end]
    ids = torch.randint(4, 30, (8, 6), generator=torch.Generator().manual_seed(2))
    for beams in (1, 4):
        limit = {"num_beams": beams, "max_new_tokens": 9, "max_length": None}
        for sentence in model.generate(ids, **limit)[:, 1:].tolist():
            said = sentence[: sentence.index(end)] if end in sentence else sentence
            assert pad not in said
        allowed = model.generate(ids, **limit, suppress_tokens=None)[:, 1:]
        assert any(pad in (row[: row.index(end)] if end in row else row) for row in allowed.tolist())


class AnybodysTrainer(GuidedAttentionMixin, Seq2SeqTrainer):
    pass


@pytest.mark.parametrize("kind", [Seq2SeqAttnTrainer, AnybodysTrainer])
@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_a_trained_model_is_the_one_that_is_saved(
    name: str, kind: Any, toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    """transformers #46620: weights that loading makes anew. Marian's positions are thawed by loading, and not saved."""
    guided_model(name, len(toy_tokenizer)).save_pretrained(tmp_path / "base")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base")
    make_trainer(model, kind=kind, max_steps=2, learning_rate=1e-2).train()
    model.save_pretrained(tmp_path / "trained")
    start, again = (AutoModelForSeq2SeqLM.from_pretrained(tmp_path / folder) for folder in ("base", "trained"))
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key
    tables = [each.get_input_embeddings().weight for each in (start, again)]
    assert not torch.equal(*tables), "nothing was trained: this test would show nothing"


# Guided attention


@pytest.mark.parametrize("name", sorted(FOREIGN))
@pytest.mark.parametrize(("rows", "layer"), [("output", 0), ("input", 1)])
def test_a_guided_head_is_the_one_that_is_read(
    name: str,
    rows: str,
    layer: int,
    toy_files: Callable[..., list[str]],
    toy_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    """fairseq #4688: the trained alignment head silently ignored at inference."""
    guided_model(name, len(toy_tokenizer)).save_pretrained(tmp_path / "base")
    toy_tokenizer.save_pretrained(tmp_path / "base")
    (tmp_path / "guided.yaml").write_text(
        "name: guided\ndata: {train: {source: '', target: ''}}\n"
        "training: {max_steps: 1, per_device_train_batch_size: 8, learning_rate: 1e-2}\n"
        f"alignment: {{weight: 5, rows: {rows}, layer: {layer}, heads: [2]}}\n"
    )
    overrides = [*toy_files(train=16, dev=6), f"model={{init_from: {tmp_path / 'base'}}}"]
    result = train(load_recipe(tmp_path / "guided.yaml", overrides), tmp_path / "run", progress=False)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run", attn_implementation="eager").eval()
    sources, targets = ((tmp_path / f"dev.{side}").read_text().splitlines() for side in ("source", "target"))
    wanted = align(again, toy_tokenizer, sources, targets, layer=layer, heads=[2], align_with=rows)
    for model in (result.model, again):
        assert saved_choice(model) == AlignmentChoice(((layer, 2),), rows)
        assert align(model, toy_tokenizer, sources, targets) == wanted
    assert wanted != align(again, toy_tokenizer, sources, targets, layer=-1, align_with=default_rows(again.config))
    scores = result.metrics["dev"]
    assert scores["align_with"] == rows
    assert scores["aer"] == pytest.approx(alignment_error_rate(wanted, list(read_gold(tmp_path / "dev.links"))))


def test_heads_that_were_chosen_before_give_way_to_guided_ones(
    toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer
) -> None:
    model = guided_model("ours-transformer", len(toy_tokenizer))
    model.generation_config.alignment_heads, model.generation_config.alignment_rows = [[0, 0]], "output"
    make_trainer(model, GuidedAttention(rows="input", layer=2, heads=[1]))
    assert saved_choice(model) == AlignmentChoice(((2, 1),), "input")
    assert (model.config.alignment_layer, model.config.alignment_heads) == (2, [1])


@pytest.mark.parametrize(("name", "field"), [("marian", "attention_dropout"), ("t5", "dropout_rate")])
def test_weights_that_come_from_after_dropout_are_told(
    name: str,
    field: str,
    toy_tokenizer: PreTrainedTokenizerFast,
    make_trainer: MakeTrainer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """sockeye PR #1108: dropout on the weights that the guided loss reads makes it noise."""
    hf_logging.enable_propagation()
    try:
        for rate in (0.0, 0.3):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                make_trainer(guided_model(name, len(toy_tokenizer), **{field: rate}), GuidedAttention())
            told = f"drops attention weights (rate {rate})" in caplog.text and f"{field}=0" in caplog.text
            assert told == (rate > 0)
        ours = guided_model("ours-transformer", len(toy_tokenizer), attention_dropout=0.3).train()
        caplog.clear()
        make_trainer(ours, GuidedAttention())
        assert "drops attention weights" not in caplog.text
    finally:
        hf_logging.disable_propagation()


@pytest.mark.parametrize("seed", range(5))
def test_links_go_to_sub_words_and_back_unharmed(seed: int) -> None:
    """OpusTrainer #38: links of words read as links of pieces point beyond the sentence."""
    draw = random.Random(seed)
    words = draw.randint(2, 7), draw.randint(2, 7)
    sides: list[list[int | None]] = [
        [*(word for word in range(count) for _ in range(draw.randint(1, 3))), None] for count in words
    ]
    links = {(draw.randrange(words[0]), draw.randrange(words[1])) for _ in range(6)}
    pieces = project_links(links, *sides)
    assert all(0 <= t < len(sides[1]) - 1 and 0 <= s < len(sides[0]) - 1 for t, s in pieces)
    weights = np.zeros((len(sides[1]), len(sides[0])))
    for t, s in pieces:
        weights[t, s] = 1
    maps = planted(weights.tolist(), *sides)
    for subwords in ("links", "matrix"):
        assert to_word_links(maps, subwords=subwords, links="threshold:0.5") == links
