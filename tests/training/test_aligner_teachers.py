"""Statistical teachers and what is kept of them."""

from pathlib import Path

import pytest

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.training.aligner_forms import teacher_forms
from hf_seq2seq_attn.training.aligner_teachers import BUILTIN, builtin_on_new_text, keep_builtin, run_teacher
from hf_seq2seq_attn.training.statistical_aligner import StatisticalAligner

SOURCE = [["cat", "dog"], ["dog"], [], ["bird", "cat", "dog"]]
TARGET = [["Katze", "Hund"], ["Hund"], ["Maus"], ["Vogel", "Katze", "Hund"]]


def test_builtin_is_trained_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forms = teacher_forms(SOURCE, TARGET)
    keep_builtin(forms, tmp_path)
    monkeypatch.setattr(StatisticalAligner, "fit", None)
    found = run_teacher(BUILTIN, forms, tmp_path)
    assert len(found) == len(forms) > 1
    assert found == builtin_on_new_text(forms, tmp_path)
    assert max(found[0].forward[1], key=lambda link: found[0].forward[1][link]) == (0, 0)
    assert found[0].forward[2] == {}


def test_what_was_kept_of_another_text_is_not_taken_for_this_one(tmp_path: Path) -> None:
    keep_builtin(teacher_forms(SOURCE, TARGET)[:1], tmp_path)
    other = teacher_forms([*SOURCE, ["cat"]], [*TARGET, ["Kater"]])[:1]
    with pytest.raises(UnusableError, match="holds the tables of another text"):
        run_teacher(BUILTIN, other, tmp_path)


def test_new_text_is_told_of_by_the_forms_that_were_kept(tmp_path: Path) -> None:
    forms = teacher_forms(SOURCE, TARGET)
    keep_builtin(forms[1:], tmp_path)
    assert len(builtin_on_new_text(forms, tmp_path)) == len(forms) - 1
