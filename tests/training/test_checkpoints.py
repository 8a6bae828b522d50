import json
import os
import shutil
from pathlib import Path

import pytest

from hf_seq2seq_attn.training.checkpoints import (
    MANIFEST_FILE,
    find_checkpoint,
    find_damage,
    list_checkpoints,
    publish,
    remove,
    rotate,
    seal,
)

STEPS = (5, 10, 40)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three whole checkpoints, whose order by name is not that by step, with a file in a sub-folder."""
    for step in STEPS:
        _write(tmp_path, f"checkpoint-{step}")
    return tmp_path


def _write(folder: Path, name: str) -> Path:
    written = folder / "saving"
    (written / "shards").mkdir(parents=True)
    (written / "weights").write_bytes(name.encode() * 100)
    (written / "shards" / "0").write_bytes(b"optimiser")
    seal(written)
    publish(written, folder / name)
    return folder / name


def _truncate(checkpoint: Path) -> None:
    os.truncate(checkpoint / "weights", 7)


def _flip(checkpoint: Path) -> None:
    data = bytearray((checkpoint / "shards" / "0").read_bytes())
    data[3] ^= 1
    (checkpoint / "shards" / "0").write_bytes(data)


def _lose_file(checkpoint: Path) -> None:
    (checkpoint / "weights").unlink()


def _lose_manifest(checkpoint: Path) -> None:
    (checkpoint / MANIFEST_FILE).unlink()


def _tear_manifest(checkpoint: Path) -> None:
    os.truncate(checkpoint / MANIFEST_FILE, 20)


def _empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


DAMAGES = [
    (_truncate, "weights has 7 bytes, not 1,300"),
    (_flip, "shards/0 holds other bytes than were written"),
    (_lose_file, "weights is missing"),
    (_lose_manifest, "no readable manifest.json"),
    (_tear_manifest, "no readable manifest.json"),
    (_empty, "no readable manifest.json"),
]


def test_a_whole_checkpoint_is_found(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert [find_damage(path) for path in list_checkpoints(folder)] == [None] * 3
    assert find_checkpoint(folder) == folder / "checkpoint-40"
    assert find_checkpoint(folder, needs_older=True) == folder / "checkpoint-40"
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-5", "checkpoint-10", "checkpoint-40"]
    assert not caplog.records
    assert find_checkpoint(folder / "nowhere") is None


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(
    folder: Path, caplog: pytest.LogCaptureFixture, damage: object, words: str
) -> None:
    assert callable(damage)
    damage(folder / "checkpoint-40")
    assert find_checkpoint(folder) == folder / "checkpoint-10"
    (line,) = caplog.messages
    assert line == f"{folder / 'checkpoint-40'} is not whole ({words}); going on from checkpoint-10"
    assert [path.name for path in folder.iterdir()].count("checkpoint-40") == 0


def test_older_damage_counts_only_where_older_ones_are_needed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    _flip(folder / "checkpoint-10")
    shutil.copytree(folder, folder.parent / "copy")
    assert find_checkpoint(folder) == folder / "checkpoint-40"
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-5", "checkpoint-40"]
    # The end of the run would read it: go back before it, and make it and what follows anew.
    copy = folder.parent / "copy"
    assert find_checkpoint(copy, needs_older=True) == copy / "checkpoint-5"
    assert [path.name for path in list_checkpoints(copy)] == ["checkpoint-5"]
    _truncate(copy / "checkpoint-5")
    assert find_checkpoint(copy) is None
    assert caplog.messages[-1].endswith("; starting from step 0")


def test_rotation_keeps_two_at_least_and_the_best(folder: Path) -> None:
    best = folder / "checkpoint-5"
    rotate(folder, None)
    rotate(folder, 3)
    assert len(list_checkpoints(folder)) == 3
    _write(folder, "checkpoint-45")
    rotate(folder, 1, {best})
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-5", "checkpoint-40", "checkpoint-45"]
    rotate(folder, 1)
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-40", "checkpoint-45"]


def test_a_rescue_goes_with_the_next_checkpoint_of_either_kind(folder: Path) -> None:
    _write(folder, "rescue-43")
    rotate(folder, 2)
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-10", "checkpoint-40", "rescue-43"]
    assert find_checkpoint(folder) == folder / "rescue-43"
    _write(folder, "rescue-44")
    rotate(folder, 2)
    assert [path.name for path in list_checkpoints(folder, "rescue")] == ["rescue-44"]
    _write(folder, "checkpoint-45")
    rotate(folder, 2)
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-40", "checkpoint-45"]


def test_a_deletion_cut_short_leaves_no_name_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)  # killed before it could delete
    remove(folder / "checkpoint-5")
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-10", "checkpoint-40"]
    monkeypatch.undo()
    assert find_checkpoint(folder) == folder / "checkpoint-40"
    assert not (folder / "removing-checkpoint-5").exists()


def test_publishing_takes_the_place_of_a_folder_with_the_name(folder: Path) -> None:
    _truncate(folder / "checkpoint-40")
    _write(folder, "checkpoint-40")
    assert find_damage(folder / "checkpoint-40") is None


def test_the_manifest_lists_everything_but_itself(folder: Path) -> None:
    sealed = json.loads((folder / "checkpoint-5" / MANIFEST_FILE).read_text())
    assert {name: entry["size"] for name, entry in sealed.items()} == {"shards/0": 9, "weights": 1200}
