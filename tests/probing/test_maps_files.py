"""Maps on disk: what is read equals what was written, bit by bit, and a damaged file says so."""

import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import (
    AttentionMaps,
    extract,
    iterate_maps,
    library_versions,
    read_maps_record,
    to_words,
    write_maps,
)
from hf_seq2seq_attn.text_files import InputError

SOURCES = ["the cats love today. σήμερα 日本語", "", 'understand <xml> "quotes" this']
TARGETS: list[Any] = [["love", "cats"], "day", "the day"]


def maps_of(model: Any, **choices: Any) -> list[AttentionMaps]:
    return list(extract(model, subword_tokenizer(), SOURCES, TARGETS, **choices))


def plain(value: Any) -> Any:
    """Return all that a value holds, arrays as bytes, so that == asks for every bit and every type."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if hasattr(value, "__dataclass_fields__"):
        return type(value), {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return type(value), value, [type(each) for each in value] if isinstance(value, list | tuple) else None


@pytest.mark.parametrize("weights", ["attention", "norm"])
def test_the_round_trip_is_exact(tmp_path: Path, weights: str) -> None:
    maps = maps_of(foreign_model("bart"), align_with="input", layers=[0, -1], heads=[2, 0], weights=weights)
    assert write_maps(tmp_path / "m.npz", maps) == 3
    found = list(iterate_maps(tmp_path / "m.npz"))
    assert [plain(each) for each in found] == [plain(each) for each in maps]
    assert [(each.layers, each.heads, each.align_with) for each in found] == [((0, 2), (2, 0), "input")] * 3
    for one, other in zip(maps, found, strict=True):
        assert np.array_equal(to_words(one, heads=[2]).weights, to_words(other, heads=[2]).weights)


def test_save_and_load_of_one_pair(tmp_path: Path) -> None:
    model = tiny_model(decoder_type="lstm", encoder_type="gru", vocab_size=73, null_key=True)
    maps = maps_of(model, weights="norm")[0]
    maps.save(tmp_path / "m.npz", model=model)
    (found,) = AttentionMaps.load(tmp_path / "m.npz")
    assert plain(found) == plain(maps)
    assert found.norms is not None and found.norms.has_null


def test_the_file_names_model_revision_and_versions(tmp_path: Path) -> None:
    model = tiny_model(vocab_size=73)
    model.save_pretrained(tmp_path / "model")
    write_maps(tmp_path / "m.npz", maps_of(model), model=tmp_path / "model")
    record = read_maps_record(tmp_path / "m.npz")
    assert (record["pairs"], record["model"]) == (3, str(tmp_path / "model"))
    assert record["revision"].startswith("sha256:")
    assert record["versions"] == library_versions()
    write_maps(tmp_path / "m.npz", [])
    assert read_maps_record(tmp_path / "m.npz") | {"versions": 0} == {
        "pairs": 0,
        "model": None,
        "revision": None,
        "versions": 0,
    }
    assert AttentionMaps.load(tmp_path / "m.npz") == []


def test_plain_numpy_reads_the_file(tmp_path: Path) -> None:
    maps = maps_of(tiny_model(vocab_size=73))
    write_maps(tmp_path / "m.npz", maps)
    with np.load(tmp_path / "m.npz", allow_pickle=False) as file:
        assert np.array_equal(file["2.weights"], maps[2].weights)
        assert json.loads(file["2.json"])["target"]["words"] == ["the", "day"]
        assert json.loads(file["maps.json"])["pairs"] == 3


def test_the_same_maps_give_the_same_bytes_in_constant_memory(tmp_path: Path) -> None:
    maps = maps_of(tiny_model(vocab_size=73))
    write_maps(tmp_path / "a.npz", maps)
    write_maps(tmp_path / "b.npz", (each for each in maps))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    found = iterate_maps(tmp_path / "a.npz")
    assert next(found).source.words == maps[0].source.words


def test_what_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    maps = maps_of(tiny_model(vocab_size=73))
    write_maps(tmp_path / "m.npz", maps[:1])

    def torn() -> Any:
        yield maps[0]
        raise RuntimeError("the model fell over")

    with pytest.raises(RuntimeError, match="fell over"):
        write_maps(tmp_path / "m.npz", torn())
    assert read_maps_record(tmp_path / "m.npz")["pairs"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m.npz"]


def rewritten(path: Path, member: str, content: bytes | None) -> None:
    """Write the archive again with another content of one member, or without it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert member in members
    with zipfile.ZipFile(path, "w") as archive:
        for name, old in members.items():
            if name != member or content is not None:
                archive.writestr(name, old if name != member else content or b"")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(b""), "no readable file of maps"),
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "no readable file of maps"),
        (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "no readable file of maps"),
        (lambda path: rewritten(path, "maps.json", None), "no file of maps"),
        (lambda path: rewritten(path, "maps.json", b"[]"), "no file of maps"),
        (lambda path: rewritten(path, "maps.json", b'{"format": "x", "pairs": 1}'), "no file of maps"),
        (lambda path: rewritten(path, "1.json", None), "pair 1 cannot be read"),
        (lambda path: rewritten(path, "1.json", b'{"source": 3}'), "pair 1 cannot be read"),
        (lambda path: rewritten(path, "1.weights.npy", None), "pair 1 cannot be read"),
        (lambda path: rewritten(path, "1.weights.npy", b"\x93NUMPY"), "pair 1 cannot be read"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any, message: str) -> None:
    path = tmp_path / "m.npz"
    write_maps(path, maps_of(tiny_model(vocab_size=73)))
    damage(path)
    with pytest.raises(InputError, match=message) as caught:
        list(iterate_maps(path))
    assert str(caught.value).startswith(str(path))


def test_one_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    write_maps(path, maps_of(tiny_model(vocab_size=73)))
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("1.weights.npy")
        place = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"m\.npz"):
        list(iterate_maps(path))


def test_arrays_that_do_not_fit_their_tokens_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    maps = maps_of(tiny_model(vocab_size=73))
    write_maps(path, maps)
    with zipfile.ZipFile(path) as archive:
        other = archive.read("0.weights.npy")
    rewritten(path, "2.weights.npy", other)
    with pytest.raises(InputError, match=r"pair 2 cannot be read \(weights of shape"):
        list(iterate_maps(path))


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    write_maps(path, [])
    with zipfile.ZipFile(path) as archive:
        record = json.loads(archive.read("maps.json"))
    rewritten(path, "maps.json", json.dumps(record | {"version": 2}).encode())
    with pytest.raises(InputError, match="newer version"):
        read_maps_record(path)
