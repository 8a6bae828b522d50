"""Tables as LaTeX, CSV and JSON."""

import csv
import json
from pathlib import Path

import pytest

from hf_seq2seq_attn.probing.tables import Table, as_json, latex_text, write_table
from hf_seq2seq_attn.text_files import InputError

TABLE = Table(
    ("system", "AER", "links", "heads"),
    [("a_b & 50%", 0.25, 31, "0,2"), ('"q"\nnext', -0.125, 4, None)],
    {"model": "dir/m_1", "versions": {"torch": "2.6", "numpy": "1.26"}, "choices": ["x", 3]},
    bold=1,
)


def test_csv_is_read_back_with_its_record(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", TABLE)
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["system"] for row in rows] == ["a_b & 50%", '"q"\nnext']
    assert [float(row["AER"]) for row in rows] == [0.25, -0.125]
    assert rows[1]["heads"] == ""
    for row in rows:
        assert (row["record.model"], row["record.versions.torch"]) == ("dir/m_1", "2.6")
        assert json.loads(row["record.choices"]) == ["x", 3]


def test_latex_is_a_booktabs_tabular(tmp_path: Path) -> None:
    write_table(tmp_path / "t.tex", TABLE)
    assert (tmp_path / "t.tex").read_text().splitlines() == [
        r"% needs \usepackage{booktabs}",
        "% model: dir/m_1",
        "% versions.torch: 2.6",
        "% versions.numpy: 1.26",
        '% choices: ["x", 3]',
        r"\begin{tabular}{lrrl}",
        r"\toprule",
        r"system & AER & links & heads \\",
        r"\midrule",
        r"a\_b \& 50\% & 0.2500 & 31 & 0,2 \\",
        r'\textbf{"q" next} & \textbf{$-$0.1250} & \textbf{4} &  \\',
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_a_record_cannot_break_out_of_its_comment() -> None:
    lines = Table(("a",), [], {"model": "x\n\\input{evil}"}).as_latex().splitlines()
    assert "% model: x \\input{evil}" in lines
    assert all(
        line.startswith(("%", "\\begin", "\\end", "\\toprule", "\\midrule", "\\bottomrule", "a ")) for line in lines
    )


def test_every_special_character_is_printed_as_it_is() -> None:
    assert latex_text(r"\{}_^~%$#&<>|") == (
        r"\textbackslash{}\{\}\_\textasciicircum{}\textasciitilde{}\%\$\#\&\textless{}\textgreater{}\textbar{}"
    )
    assert latex_text("σήμερα 猫") == "σήμερα 猫"


def test_json_holds_rows_and_record_or_more(tmp_path: Path) -> None:
    write_table(tmp_path / "t.json", TABLE)
    content = json.loads((tmp_path / "t.json").read_text())
    assert content["rows"][0] == {"system": "a_b & 50%", "AER": 0.25, "links": 31, "heads": "0,2"}
    assert content["record"]["versions"]["torch"] == "2.6"
    write_table(tmp_path / "t.json", TABLE, {"more": 1})
    assert json.loads((tmp_path / "t.json").read_text()) == {"more": 1}


def test_not_a_number_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        as_json({"aer": float("nan")})


def test_what_a_table_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.xls: allowed suffixes are \.tex, \.csv, \.json"):
        write_table(tmp_path / "t.xls", TABLE)
    with pytest.raises(ValueError, match="row 1 has 1 values for 2 columns"):
        Table(("a", "b"), [(1, 2), (3,)], {})
