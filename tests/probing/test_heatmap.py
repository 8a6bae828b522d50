"""Pictures: every script without a warning, one label a word, the same bytes twice."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, draw_heatmap, save_heatmap
from hf_seq2seq_attn.text_files import InputError

SOURCE = ["In", "$was$", "שָׁלוֹם", "العربية", "日本語", "😀", "", "\x07", "𓀀", "x_y^z"]
TARGET = ["λόγος", "喜欢", "กิ", "end\u200b"]
GOLD = Gold(frozenset({(0, 0), (2, 1)}), frozenset({(1, 1)}))


@pytest.fixture(autouse=True)
def no_warning():  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def matrix(rows: int = len(TARGET), columns: int = len(SOURCE)) -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.ones(columns), size=rows)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_any_script_without_a_warning_and_the_same_bytes_twice(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        save_heatmap(path, matrix(), SOURCE, TARGET, GOLD, links=frozenset({(0, 0), (3, 3)}), title="$日本 <b>")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size > 2000


def test_one_label_a_word_in_order_and_the_lost_glyph_is_said() -> None:
    ax = draw_heatmap(matrix(), SOURCE, TARGET)
    assert len(ax.get_xticks()) == len(SOURCE)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels[:2] == ["In", "$was$"]
    assert labels[6:9] == ["", "[U+0007]", labels[8]]
    assert ax.get_xlabel().startswith("no installed font has U+0007")
    assert ax.get_yticklabels()[0].get_text() == "λόγος"
    # Row 0 is at the top, as in text.
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_gold_and_links_are_told_apart_by_shape() -> None:
    ax = draw_heatmap(matrix(), SOURCE, TARGET, GOLD, links={(0, 0), (1, 1), (3, 3)})
    frames = {(patch.get_x() + 0.42, patch.get_y() + 0.42): patch.get_linestyle() for patch in ax.patches}
    assert {tuple(round(value) for value in place): style for place, style in frames.items()} == {
        (0, 0): "solid",
        (2, 1): "solid",
        (1, 1): "dashed",
    }
    dots, crosses = ax.collections
    assert sorted(map(tuple, np.asarray(dots.get_offsets()).tolist())) == [(0, 0), (1, 1)]
    assert np.asarray(crosses.get_offsets()).tolist() == [[3, 3]]
    assert not np.array_equal(dots.get_paths()[0].vertices, crosses.get_paths()[0].vertices)


def test_blank_sides_and_long_sentences(tmp_path: Path) -> None:
    save_heatmap(tmp_path / "a.png", np.zeros((0, 2)), ["a", "b"], [])
    save_heatmap(tmp_path / "b.png", np.zeros((1, 0)), [], ["a"])
    save_heatmap(tmp_path / "c.svg", matrix(50, 60), [f"s{n}" for n in range(60)], [f"t{n}" for n in range(50)])
    text = (tmp_path / "c.svg").read_text()
    assert all(f">s{n}<" in text for n in range(60))


def test_long_sentences_stay_within_a_printer_s_means() -> None:
    ax = draw_heatmap(np.zeros((400, 7)), [f"s{n}" for n in range(7)], [f"t{n}" for n in range(400)])
    width, height = ax.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    assert width < 5 and height < 23
    assert 2 < ax.get_yticklabels()[0].get_fontsize() < 4


def test_drawing_on_given_axes() -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert draw_heatmap(matrix(), SOURCE, TARGET, ax=ax) is ax


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shape \(10, 4\), but there are 4 target and 10 source words"):
        draw_heatmap(matrix().T, SOURCE, TARGET)
    with pytest.raises(ValueError, match="NaN"):
        draw_heatmap(np.full((1, 1), np.nan), ["a"], ["b"])
    with pytest.raises(ValueError, match=r"allowed suffixes are \.png, \.svg, \.pdf"):
        save_heatmap(tmp_path / "a.jpg", matrix(), SOURCE, TARGET)
    with pytest.raises(InputError, match=r"no/a\.png: cannot be written"):
        save_heatmap(tmp_path / "no" / "a.png", matrix(), SOURCE, TARGET)
