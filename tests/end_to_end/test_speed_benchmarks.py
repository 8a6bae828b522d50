"""The benchmarks of speed and memory run on tiny work of ours and write what the table is made from."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks" / "speed"


@pytest.fixture(scope="module", autouse=True)
def benchmarks():
    """Import the scripts as their own folder does, and take their plain names back afterwards."""
    before, threads = set(sys.modules), torch.get_num_threads()
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        module_file = getattr(sys.modules[name], "__file__", None) or ""
        if Path(module_file).is_relative_to(FOLDER):
            del sys.modules[name]


@pytest.fixture
def tiny(monkeypatch):
    """Shrink the vocabulary of both corpora, and one round is enough."""
    import measuring
    import workloads

    monkeypatch.setitem(workloads.CORPORA, "multi30k", workloads.Corpus(60, 5, 2, 9))
    monkeypatch.setattr(workloads, "SENTENCES", 200)
    monkeypatch.setattr(measuring, "TURN", 0.0)
    return workloads.Recurrent(60, width=16), workloads.Transformer(60, width=16, layers=1, heads=2, inner=32)


def absent(rows):
    """Return an entry for a peer that nobody has installed."""
    return rows.Entry("peers.no_such_toolkit")


def test_training_rows_are_measured_written_and_tabled(tiny, tmp_path):
    import measuring
    import rows
    import table
    import training_speed

    recurrent, transformer = tiny
    first = dataclasses.replace(
        rows.TRAINING[0], size=recurrent, tokens=40, entries=(rows.BAHDANAU, rows.INPUT_FEEDING, absent(rows))
    )
    plain = rows.Entry("ours", {"name": "plain", "plain": True})
    second = dataclasses.replace(
        rows.TRAINING[-1],
        size=transformer,
        tokens=40,
        entries=(rows.OURS, plain),
        targets=(rows.Target(("plain",), 1e-9), rows.Target(("plain",), 1e9)),
    )
    chosen = argparse.Namespace(minutes=0, rows=None, output=tmp_path / "speed.json", threads=1)
    measuring.measured_rows([first, second], training_speed.measure, chosen)
    written = json.loads(chosen.output.read_text())
    assert written["machine"]["versions"]["torch"] == torch.__version__
    one, two = written["rows"]
    assert one["rounds"] >= 3
    assert list(one["contestants"]) == ["ours", "ours, input feeding"]
    assert all(measured["tokens/s"] > 0 and measured["adam"] == "fused" for measured in one["contestants"].values())
    assert one["targets"] == [], "none of the peers was there to be judged against"
    assert len(one["left_out"]) == 1 and one["left_out"][0].startswith("no_such_toolkit is left out: ")
    assert [target["reached"] for target in two["targets"]] == [True, False]
    ratios = [
        theirs / mine
        for mine, theirs in zip(*(two["contestants"][name]["seconds"] for name in ("ours", "plain")), strict=True)
    ]
    assert min(ratios) * 0.9 <= two["ours_against"]["plain"] <= max(ratios) * 1.1
    shown = table.markdown([written])
    assert "| reached |" in shown and "| **missed** |" in shown
    assert one["left_out"][0] in shown


def test_decoding_gives_exactly_the_forced_tokens(tiny):
    import contestant
    import decoding_speed
    import measuring
    import rows
    import workloads

    recurrent, _ = tiny
    row = dataclasses.replace(rows.DECODING[3], size=recurrent, sentences=3, entries=(rows.BAHDANAU, absent(rows)))
    record = decoding_speed.measure(row, until=0)
    assert record["contestants"]["ours"]["sentences/s"] > 0
    assert record["left_out"][0].startswith("no_such_toolkit is left out: ")
    (ours,), _ = measuring.contestants_of(row)
    batch = workloads.decoding_batch("multi30k", 3)
    ours.decode = lambda batch, beams: torch.zeros(3, workloads.NEW_TOKENS - 1)
    with pytest.raises(RuntimeError, match=r"ours gave tokens of shape \(3, 19\)"):
        contestant.decoding(ours, batch, 1)()


def test_a_contestant_of_another_size_is_refused(tiny):
    import measuring
    import rows

    recurrent, _ = tiny
    bigger = rows.Entry("ours", {"cross_attention_type": "additive", "cross_attention_dim": 96, "name": "bigger"})
    row = dataclasses.replace(rows.TRAINING[0], size=recurrent, entries=(rows.BAHDANAU, bigger))
    with pytest.raises(ValueError, match=r"bigger has .* parameters, ours .* within 15%"):
        measuring.contestants_of(row)


def test_batches_hold_the_same_tokens_on_both_sides_of_the_shift(tiny):
    from workloads import END, PAD, START, training_batches

    batches = training_batches("multi30k", 4, 40)
    assert len(batches) == 4
    for batch in batches:
        assert batch.target.numel() <= 40
        assert batch.source_lengths.tolist() == sorted(batch.source_lengths.tolist(), reverse=True)
        assert (batch.target_inputs[:, 0] == START).all()
        assert ((batch.target == END).sum(1) == 1).all() and ((batch.source == END).sum(1) == 1).all()
        words = batch.target_inputs[:, 1:]
        assert torch.equal(words, batch.target[:, :-1].masked_fill(batch.target[:, :-1] == END, PAD))
        assert batch.tokens == int(batch.target_lengths.sum())


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the high-water mark is the Linux kernel's")
def test_extra_memory_is_what_a_call_holds_at_its_peak():
    from memory import extra_bytes

    held = 64 * 2**20

    def call():
        first = torch.ones(held // 4)
        return first.sum()

    assert 0.9 * held <= extra_bytes(call) <= 1.3 * held


def test_attention_forms_agree_and_are_judged_by_speed_and_memory(tiny, monkeypatch):
    import attention_speed
    import rows

    held = {"ours": 10, "ours without kernels": 12, "plain form": 150}
    monkeypatch.setattr(attention_speed, "extra_bytes_in_child", lambda module, key, form: held[form])
    record = attention_speed.measure(rows.AttentionRow("tiny", (2, 5, 7, 24), faster=1e-9, smaller=20.0), until=0)
    assert record["largest_relative_gradient_error"] < 1e-4
    assert [(target["reached"], target["at_least"]) for target in record["targets"]] == [(True, 1e-9), (False, 20.0)]
    assert record["targets"][1]["measured"] == 15.0
