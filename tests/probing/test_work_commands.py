"""The commands lexicon, check and quality."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from probes import subword_tokenizer
from variants import tiny_model

Run = Callable[..., tuple[int, str, str]]


def write(name: str, *lines: str) -> str:
    data = "".join(line + "\n" for line in lines).encode()
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return name


def corpus() -> list[str]:
    """Write verses of which the second belongs to the first; return source, target, links."""
    write("v", "GEN 1:1", "GEN 1:2", "GEN 1:3", "GEN 1:4")
    write("s.lemma", "gott haus", "sehen", "", "gott gut")
    return [
        write("s.gz", "Gott Haus", "sah", "", "Gottes Gut"),
        write("t", "God saw the house", "<range>", "", "good Lord"),
        write("l", "0-0 1-2 1-3 2-1", "", "", "0-1 1-0"),
    ]


def test_lexicon(run: Run) -> None:
    files = corpus()
    code, out, err = run("lexicon", *files, "--ids", "v", "--source-lemmas", "s.lemma", "--ignore-case")
    assert code == 0
    assert out.splitlines() == [
        "source\ttarget\tcount\tsource_count\ttarget_count\tp_target_given_source\tp_source_given_target\texamples",
        "gott\tgod\t1\t2\t1\t0.5000\t1.0000\tGEN 1:1",
        "gott\tlord\t1\t2\t1\t0.5000\t1.0000\tGEN 1:4",
        "gut\tgood\t1\t1\t1\t1.0000\t1.0000\tGEN 1:4",
        "haus\tthe house\t1\t1\t1\t1.0000\t1.0000\tGEN 1:1",
        "sehen\tsaw\t1\t1\t1\t1.0000\t1.0000\tGEN 1:1",
    ]
    assert err.endswith("5 entries\n")
    code, out, _ = run("lexicon", *files, "--json", "--top-words", "1", "-o", "out.jsonl.gz")
    assert (code, out) == (0, "")
    entry = json.loads(gzip.decompress(Path("out.jsonl.gz").read_bytes()))
    assert entry == {
        "source": "Gott",
        "target": "God",
        "count": 1,
        "source_count": 1,
        "target_count": 1,
        "p_target_given_source": 1.0,
        "p_source_given_target": 1.0,
        "examples": ["1"],
    }


def test_check_and_its_exit_codes(run: Run) -> None:
    files = corpus()
    write("terms", "gott\tGod", "haus\thouse", "engel\tangel")
    options = ["--ids", "v", "--source-lemmas", "s.lemma"]
    code, out, err = run("check", *files, "--terms", "terms", *options)
    assert code == 1
    assert out.splitlines() == [
        "line\tverse\tterm\tverdict\tsource\trendering\tmatched\telsewhere\tconfidence\tpositions",
        "1\tGEN 1:1\tgott\tallowed\tGott\tGod\tGod\t\t1.0000\t0",
        "1\tGEN 1:1\thaus\tallowed\tHaus\tthe house\thouse\t\t1.0000\t1",
        "4\tGEN 1:4\tgott\totherwise\tGottes\tLord\t\t\t1.0000\t0",
    ]
    assert "engel: does not occur" in err
    assert err.endswith("3 occurrences of 3 terms: 2 allowed, 1 otherwise, 0 unaligned\n")
    write("terms", "gott\tGod|Lord")
    code, out, _ = run("check", *files, "--terms", "terms", *options, "--summary", "--json")
    assert (code, json.loads(out)) == (
        0,
        {"term": "gott", "occurrences": 2, "allowed": 2, "otherwise": 0, "unaligned": 0},
    )
    write("terms", "gott")
    code, out, err = run("check", *files, "--terms", "terms", "-o", "out.tsv")
    assert (code, out) == (2, "")
    assert err.startswith("terms:1: 'gott' is no term; write")
    assert not Path("out.tsv").exists()


def test_a_line_that_is_wrong_is_named_with_its_verse_and_nothing_is_written(run: Run) -> None:
    source, target, _ = corpus()
    links = write("k", "0-0", "", "", "0-5")
    for command in ("lexicon", "quality"):
        code, out, err = run(command, source, target, links, "--ids", "v", "-o", "out.tsv")
        assert (code, out) == (2, "")
        assert err.startswith("k:4 (GEN 1:4): target index 5 (counted from 0), but the sentence has 2 words")
        assert not Path("out.tsv").exists()


def test_quality_worst_first_or_in_order(run: Run) -> None:
    count = 30
    source = write("s", *("a b c d e f g",) * count)
    target = write("t", *("A B C D E F G",) * 7, "A B C", *("A B C D E F G",) * (count - 8))
    links = write(
        "l", *("0-0 1-1 2-2 3-3 4-4 5-5 6-6",) * 7, "0-0 1-1 2-2", *("0-0 1-1 2-2 3-3 4-4 5-5 6-6",) * (count - 8)
    )
    code, out, err = run("quality", source, target, links)
    assert code == 0
    header, worst, *rest = (line.split("\t") for line in out.splitlines())
    names = "link_support source_coverage target_coverage omitted added repetition length_ratio"
    assert " ".join(header) == f"rank line verse badness reason {names} length_z omitted_spans added_spans"
    found = dict(zip(header, worst, strict=True))
    assert found["reason"] in ("source_coverage", "omitted", "length_ratio")
    assert (found["rank"], found["line"], found["omitted"], found["omitted_spans"]) == ("1", "8", "4", "d e f g")
    assert float(found["badness"]) > float(rest[0][3])
    assert len(rest) == count - 1
    assert float(found["length_z"]) < 0
    assert err.endswith(f"30 lines, judged by {names.replace(' ', ', ')}\n")
    code, out, _ = run("quality", source, target, links, "--input-order", "--json")
    assert [json.loads(line)["line"] for line in out.splitlines()] == list(range(1, count + 1))
    code, _, err = run("quality", source, target)
    assert (code, err) == (2, "quality: nothing to judge lines by; give LINKS, --model, or both\n")


def test_quality_by_a_model(run: Run) -> None:
    tiny_model(vocab_size=73, decoder_type="gru", encoder_type="gru").save_pretrained("model")
    subword_tokenizer().save_pretrained("model")
    source, target = write("s", "the cats love", "", "I love"), write("t", "love cats", "", "day")
    code, out, err = run("quality", source, target, "--model", "model", "--json", "--input-order")
    assert code == 0
    first, blank, last = map(json.loads, out.splitlines())
    assert first["model_score"] < 0 < first["sink_mass"] < 1
    assert (blank["badness"], blank["model_score"], last["line"]) == (0, None, 3)
    assert "read 3/3" in err
