import random
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_seq2seq_attn.probing import Gold, aer_module_path, format_links, score_links

evaluate = pytest.importorskip("evaluate")


@pytest.fixture(scope="module")
def metric(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return evaluate.load(str(aer_module_path()), cache_dir=str(tmp_path_factory.mktemp("cache")))


def random_case(draw: random.Random, sentences: int) -> tuple[list[frozenset], list[Gold]]:
    def some(count: int) -> frozenset:
        return frozenset((draw.randrange(6), draw.randrange(9)) for _ in range(count))

    links = [some(draw.randint(0, 9)) for _ in range(sentences)]
    return links, [Gold(some(draw.randint(0, 5)), some(draw.randint(0, 7))) for _ in range(sentences)]


@pytest.mark.parametrize("seed", range(8))
def test_it_computes_what_score_links_computes(metric: Any, seed: int) -> None:
    draw = random.Random(seed)
    links, gold = random_case(draw, sentences=1 + seed)
    wanted = score_links(links, gold).as_dict()
    predictions = [[format_links(each) for each in links], [[list(link) for link in sorted(each)] for each in links]]
    references = [
        [format_links(each) for each in gold],
        [{"sure": [list(x) for x in each.sure], "possible": [list(x) for x in each.possible]} for each in gold],
        [
            {"sure": [list(x) for x in each.sure], "possible": [list(x) for x in each.possible - each.sure]}
            for each in gold
        ],
    ]
    for prediction in predictions:
        for reference in references:
            scores = metric.compute(predictions=prediction, references=reference)
            assert scores == {key: pytest.approx(wanted[key]) for key in scores}
            assert set(scores) == {"aer", "precision", "recall", "f1", "links", "sure", "possible", "sentences"}


def test_plain_pairs_are_all_sure(metric: Any) -> None:
    pairs = [[[0, 0], [1, 2]], []]
    scores = metric.compute(predictions=["0-0:0.7 2-2", ""], references=pairs)
    assert (scores["sure"], scores["possible"], scores["aer"]) == (2, 2, pytest.approx(0.5))


def test_nothing_wanted_and_nothing_found_is_right(metric: Any) -> None:
    assert metric.compute(predictions=["", ""], references=["", ""])["aer"] == 0
    assert metric.compute(predictions=["0-0"], references=[""])["aer"] == 1


def test_bases_may_differ(metric: Any) -> None:
    scores = metric.compute(predictions=["0-0 1-2"], references=["1-1 2p3"], reference_base=1)
    assert scores["aer"] == 0
    assert metric.compute(predictions=["0-0 1-2"], references=["1-1 2p3"])["aer"] == 1
    with pytest.raises(ValueError, match="reference 2: a word below 1"):
        metric.compute(predictions=["0-0", ""], references=["1-1", "0-1"], reference_base=1)


def test_added_batches_are_one_corpus(metric: Any) -> None:
    links, gold = random_case(random.Random(9), sentences=7)
    for start in range(0, 7, 3):
        metric.add_batch(
            predictions=[format_links(each) for each in links[start : start + 3]],
            references=[format_links(each) for each in gold[start : start + 3]],
        )
    assert metric.compute()["aer"] == pytest.approx(score_links(links, gold).aer)


@pytest.mark.parametrize("bad", ["0_0", "0-0-1", "-1-0", "a-b"])
def test_what_is_no_link_is_refused(metric: Any, bad: str) -> None:
    with pytest.raises(ValueError, match=f"prediction 2: '{bad}' is no link"):
        metric.compute(predictions=["0-0", bad], references=["0-0", "0-0"])


def test_unequal_numbers_are_refused(metric: Any) -> None:
    with pytest.raises(ValueError, match="Mismatch in the number of"):
        metric.compute(predictions=["0-0"], references=["0-0", "1-1"])


def test_the_folder_is_a_space_that_needs_nothing_of_ours(tmp_path: Path) -> None:
    """A copy of it loads in a process that cannot import this package, and gives the figures that its README shows."""
    space = shutil.copytree(aer_module_path(), tmp_path / "aer", ignore=shutil.ignore_patterns("__pycache__"))
    assert {path.name for path in space.iterdir()} == {"README.md", "aer.py", "app.py", "requirements.txt"}
    readme = (space / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(readme.split("---\n")[1])
    assert {"evaluate", "metric"} <= set(front["tags"])
    assert (space / front["app_file"]).is_file()
    code = re.search(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert code is not None
    program = code[1].replace('"aer"', repr(str(space))).replace("aer.compute", "print(aer.compute").rstrip()
    program = re.sub(r"\)\n#", "))\n#", program, count=1)
    blocked = "import sys; sys.modules['hf_seq2seq_attn'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = re.sub(r"\n# *", " ", code[1][code[1].index("# {") + 2 :]).strip()
    assert eval(done.stdout) == eval(shown)


def test_its_page_starts_and_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas

    pages: list[dict[str, Any]] = []

    class Interface:
        def __init__(self, **fields: Any) -> None:
            pages.append(fields)

        def launch(self) -> None:
            pages[-1]["launched"] = True

    gradio: Any = types.ModuleType("gradio")
    gradio.Interface = Interface
    gradio.inputs = types.SimpleNamespace(Dataframe=lambda **fields: fields)
    gradio.outputs = types.SimpleNamespace(Textbox=lambda **fields: fields)
    monkeypatch.setitem(sys.modules, "gradio", gradio)
    runpy.run_path(str(aer_module_path() / "app.py"))
    (page,) = pages
    assert page["launched"]
    assert page["inputs"]["datatype"] == ["str", "str"]
    table = pandas.DataFrame({name: ['"0-0 1-1 2-2"'] for name in page["inputs"]["headers"]})
    table[page["inputs"]["headers"][1]] = ['"0-0 1p1 2-1"']
    assert page["fn"](table)["aer"] == pytest.approx(0.4)
