"""The data section of a recipe: forms that mean a corpus, and slips that are refused at their line."""

from pathlib import Path

import pytest

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.data_recipe import (
    CleaningRecipe,
    CorpusDataset,
    CorpusFiles,
    CorpusTable,
    corpora_of,
    has_links,
    local_files,
    name_of,
)
from hf_seq2seq_attn.training.recipe import load_recipe, save_recipe

TEXT = """\
data:
  train:
    - {source: a.de, target: a.en, links: a.align}
    - {file: b.tsv.gz, source_column: 2, target_column: 0,
       weight: 3}
    - file: c.jsonl
      source_column: translation.de
      target_column: translation.en
    - {dataset: some/corpus, config: de-en, split: validation, revision: v2, target_column: text}
  dev: {file: dev.parquet}
  cleaning: {max_ratio: 3, drop_duplicates: true}
  max_source_length: 50
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "r.yaml").write_text(TEXT)
    return tmp_path / "r.yaml"


def test_every_form_arrives_as_its_kind(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.data.train == [
        CorpusFiles("a.de", "a.en", "a.align"),
        CorpusTable("b.tsv.gz", 2, 0, weight=3.0),
        CorpusTable("c.jsonl", "translation.de", "translation.en"),
        CorpusDataset("some/corpus", "de-en", "validation", "v2", target_column="text"),
    ]
    assert recipe.data.dev == CorpusTable("dev.parquet")
    assert recipe.data.cleaning == CleaningRecipe(max_ratio=3.0, drop_duplicates=True)
    corpora = corpora_of(recipe.data)
    assert [has_links(corpus) for corpus in corpora] == [True, False, False, False]
    assert [name_of(corpus) for corpus in corpora] == ["a.de", "b.tsv.gz", "c.jsonl", "some/corpus:de-en:validation"]
    files = [str(file) for corpus in corpora for file in local_files(corpus)]
    assert files == ["a.de", "a.en", "a.align", "b.tsv.gz", "c.jsonl"]
    save_recipe(recipe, tmp_path / "again.yaml")
    assert load_recipe(tmp_path / "again.yaml") == recipe


def test_two_files_may_be_given_field_by_field(path: Path) -> None:
    path.write_text("data: {train: {source: '', target: ''}}\n")
    recipe = load_recipe(path, ["data.train.source=x", "data.train.target=y"])
    assert recipe.data.train == CorpusFiles("x", "y")
    recipe = load_recipe(path, ["data.train={file: x.tsv}", "data.train.weight=2"])
    assert recipe.data.train == CorpusTable("x.tsv", weight=2.0)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("file: b.tsv.gz", "fil: b.tsv.gz", 4, "data.train.1 must say where its pairs lie by one of `source`"),
        ("{dataset: some/corpus", "{file: x.tsv, dataset: some/corpus", 9, "by one of `source` and `target`, `file`"),
        ("target: a.en, ", "", 3, "data.train.0.target is missing"),
        ("weight: 3", "wieght: 3", 5, "data.train.1 has no field 'wieght'; did you mean weight?"),
        ("weight: 3", "weight: 0", 5, "data.train.1.weight=0: must be above 0; take the corpus out"),
        ("weight: 3", "weight: .inf", 5, "data.train.1.weight=inf"),
        ("weight: 3", "weight: much", 5, "data.train.1.weight='much': must be float"),
        ("weight: 3", "links_base: 1", 5, "data.train.1.links_base=1: there are no links"),
        ("weight: 3", "links_column: 3, links_base: 2", 5, "data.train.1.links_base=2: choose 0 or 1"),
        ("file: dev.parquet", "file: dev.parquet, weight: 2", 10, "only training corpora are weighted"),
        ("file: dev.parquet", "file: dev.csv", 10, "data.dev.file='dev.csv': its format is told by its ending"),
        ("file: dev.parquet", "file: dev.parquet.gz", 10, "compressed inside; take .gz off"),
        ("source_column: 2", "source_column: -2", 4, "data.train.1.source_column=-2: count from 0"),
        ("source_column: 2", "source_column: true", 4, "data.train.1.source_column=True: must be int, not bool"),
        ("source_column: 2", "source_column: de", 4, "by number and by name; use one of both"),
        (
            "source_column: translation.de",
            "source_column: 1",
            7,
            "data.train.2.source_column=1: only a TSV has numbered",
        ),
        ("max_ratio: 3", "max_ratio: 0.5", 11, "data.cleaning.max_ratio=0.5: must be at least 1"),
        ("max_ratio: 3", "max_words: 0", 11, "data.cleaning.max_words=0: must be at least 1"),
        ("max_ratio: 3", "max_rato: 3", 11, "data.cleaning has no field 'max_rato'; did you mean max_ratio?"),
        ("max_source_length: 50", "max_source_length: 0", 12, "data.max_source_length=0: must be at least 1"),
        ("max_source_length: 50", "tokenizer_sample: 0", 12, "data.tokenizer_sample=0: must be at least 1"),
        (TEXT[TEXT.index("\n    - {source") : TEXT.index("  dev:")], " []\n", 2, "data.train is an empty list"),
        (TEXT[TEXT.index("\n    - {source") : TEXT.index("  dev:")], " a.tsv\n", 2, "holds fields, not 'a.tsv'"),
    ],
)
def test_a_slip_is_refused_at_its_line(path: Path, old: str, new: str, line: int, message: str) -> None:
    assert TEXT.count(old) == 1
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError) as refusal:
        load_recipe(path)
    assert str(refusal.value).startswith(f"{path}:{line}: ")
    assert message in str(refusal.value)


def test_guidance_needs_links_in_one_corpus_at_least(path: Path) -> None:
    assert load_recipe(path, ["alignment={weight: 1}"]).alignment is not None
    with pytest.raises(InputError, match=r"guided attention needs data\.train\.links"):
        load_recipe(path, ["alignment={weight: 1}", "data.train={file: a.tsv}"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["batching={tokens: 100}"], "batching by tokens needs all pairs in memory"),
        (["alignment={links: eflomal}"], "alignment.links=eflomal needs all pairs in memory"),
    ],
)
def test_what_needs_all_pairs_goes_with_no_stream(path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_recipe(path, ["data.train={file: a.tsv}", "data.streaming=true", "training={max_steps: 5}", *overrides])
    assert message in str(refusal.value)
