"""The runs that the quality tables are made from, in the order in which they are worth having.

Minutes are CPU minutes of one thread on a CPU with bfloat16 products, scoring included, as estimated from a probe of
some steps on a busy machine; what a run took stands in its metrics.json.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from corpora import CMUDICT, Corpus, multi30k, sigmorphon

from hf_seq2seq_attn.training.recipe import Recipe, load_recipe

DE_EN, EN_DE = multi30k("de", "en"), multi30k("en", "de")
MEDIUM = ("arm_e", "bul", "dut", "fre", "geo", "hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi")


@dataclass(frozen=True)
class Run:
    """One training, and where its scores belong.

    Attributes:
        kind: `row` of the results table; `ablation`, one factor changed from a baseline; `trial`, scored on dev alone.
        overrides: put over the shipped `recipe`.
    """

    name: str
    recipe: str
    corpus: Corpus
    minutes: float
    kind: str = "row"
    overrides: tuple[str, ...] = ()

    def load(self, data: Path, work: Path) -> Recipe:
        """Return its recipe; a trial has no test part."""
        files = self.corpus.overrides(data, work, tested=self.kind != "trial")
        return load_recipe(self.recipe, [*files, *self.overrides])

    def is_of(self, recipe: Path) -> bool:
        """Tell whether a recipe that was kept with results is the run's today, wherever its data lie."""
        somewhere = Path("somewhere")
        today = replace(self, corpus=replace(self.corpus, rewritten=None)).load(somewhere, somewhere)
        return _settings(load_recipe(recipe)) == _settings(today)


def _settings(recipe: Recipe) -> dict[str, Any]:
    settings = asdict(recipe)
    settings["prepare"] = None
    for name in ("train", "dev", "test", "source_language", "target_language", "attribution"):
        settings["data"][name] = None
    return settings


@dataclass(frozen=True)
class Row:
    """One line of the results table.

    Attributes:
        targets: for each test part the figure to reach; empty where only the figure is asked for.
        near: another run, and by how much at most the first test part may stay behind its figure.
        runs: whose mean is shown, of seeds or of languages.
    """

    task: str
    anchor: str
    runs: tuple[str, ...]
    targets: dict[str, float] = field(default_factory=dict)
    near: tuple[str, float] | None = None


# Twice as wide as the recipe: better after 10 epochs (trials.md), not at the end.
WIDE = (
    "model.d_model=256", "model.encoder_layers=3", "model.decoder_layers=3", "model.encoder_ffn_dim=512",
    "model.decoder_ffn_dim=512", "training.learning_rate=1.5e-3", "tokenizer.vocab_size=6000",
)  # fmt: skip

MAIN = (
    Run("de_en_bahdanau", "multi30k_bahdanau", DE_EN, 75),
    Run("en_de_transformer", "multi30k_transformer", EN_DE, 80),
    Run("g2p_eng_us", "sigmorphon_g2p", sigmorphon("high/eng_us"), 45,
        overrides=("training.num_train_epochs=30", "model.dropout=0.3", "validation.limit=1500")),
    Run("en_de_bahdanau", "multi30k_bahdanau", EN_DE, 80),
    Run("de_en_transformer", "multi30k_transformer", DE_EN, 80),
    Run("en_de_hybrid", "multi30k_hybrid", EN_DE, 75),
    Run("en_de_transformer_wide", "multi30k_transformer", EN_DE, 85,
        overrides=(*WIDE, "model.dropout=0.25", "training.num_train_epochs=30")),
    *(Run(f"g2p_{name}", "sigmorphon_g2p", sigmorphon(f"medium/{name}"), 18) for name in MEDIUM),
    Run("cmudict", "g2p", CMUDICT, 42),
)  # fmt: skip

# Half the width and 8 epochs of multi30k_bahdanau. Its query is the current state, without which there is no input
# feeding; its values are projected, without which there are no several heads.
BASELINE = (
    "model.d_model=256", "model.dropout=0.3", "model.attend_with=current_state", "model.project_values=true",
    "training.num_train_epochs=8",
)  # fmt: skip
DOT = "model.cross_attention_type=scaled_dot_product"
FACTORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "additive": ("additive, 1 head, current state, no input feeding, concat", ()),
    "dot": ("scaled dot product", (DOT,)),
    "heads": ("4 heads", ("model.cross_attention_heads=4",)),
    "previous": ("query from the previous state", ("model.attend_with=previous_state",)),
    "feeding": ("input feeding", ("model.input_feeding=true",)),
    "add": ("fusion by addition", ("model.context_fusion=add",)),
    "gate": ("fusion by a gate", ("model.context_fusion=gate",)),
    "none": ("no attention: one fixed vector", ("model.cross_attention_type=none", "model.project_values=null")),
}
"""Name -> what is changed, and how."""
SEEDS = {"additive": (1, 2, 3), "dot": (1, 2, 3)}


def ablation_name(factor: str, seed: int = 1) -> str:
    """Return the name of the run of a factor."""
    return f"ablation_{factor}" if seed == 1 else f"ablation_{factor}_seed{seed}"


ABLATION = tuple(
    Run(ablation_name(factor, seed), "multi30k_bahdanau", DE_EN, 16, "ablation",
        (*BASELINE, *changed, f"training.seed={seed}"))
    for seed in (1, 2, 3)
    for factor, (_, changed) in FACTORS.items()
    if seed in SEEDS.get(factor, (1,))
)  # fmt: skip

# Half of the epochs: what is better then is not always better at the end, but sizes and rates that are bad show.
_SHORT = "training.num_train_epochs=10"
FEEDING = (
    _SHORT, "batching.tokens=1024", "training.learning_rate=1.0e-3", "model.dropout=0.2",
    "model.attend_with=current_state", "model.input_feeding=true",
)  # fmt: skip
FIRST = ("tokenizer.vocab_size=6000", "model.dropout=0.2")
"""What the recipe of the Transformer had before these trials."""
TRIALS = (
    Run("trial_bahdanau", "multi30k_bahdanau", DE_EN, 34, "trial", (_SHORT,)),
    Run("trial_bahdanau_dropout_0.5", "multi30k_bahdanau", DE_EN, 34, "trial", (_SHORT, "model.dropout=0.5")),
    Run("trial_bahdanau_pieces_4000", "multi30k_bahdanau", DE_EN, 33, "trial", (_SHORT, "tokenizer.vocab_size=4000")),
    Run("trial_bahdanau_pieces_10000", "multi30k_bahdanau", DE_EN, 40, "trial", (_SHORT, "tokenizer.vocab_size=10000")),
    Run("trial_bahdanau_rate_5e-4", "multi30k_bahdanau", DE_EN, 34, "trial", (_SHORT, "training.learning_rate=5.0e-4")),
    Run("trial_transformer_short_2048", "multi30k_transformer", EN_DE, 15, "trial",
        (*FIRST, _SHORT, "model.dropout=0.3")),
    Run("trial_transformer_short_2048_dropout_0.2", "multi30k_transformer", EN_DE, 15, "trial", (*FIRST, _SHORT)),
    Run("trial_transformer_short_1024", "multi30k_transformer", EN_DE, 20, "trial",
        (*FIRST, _SHORT, "batching.tokens=1024", "training.learning_rate=2.0e-3", "model.dropout=0.3")),
    Run("trial_transformer_short_wide", "multi30k_transformer", EN_DE, 25, "trial",
        (*WIDE, "model.dropout=0.2", _SHORT)),
    Run("trial_transformer_short_pieces_10000", "multi30k_transformer", EN_DE, 20, "trial",
        (*FIRST, _SHORT, "tokenizer.vocab_size=10000")),
    Run("trial_hybrid_short_feeding", "multi30k_hybrid", EN_DE, 28, "trial", FEEDING),
    Run("trial_hybrid_short_heads", "multi30k_hybrid", EN_DE, 28, "trial", (*FEEDING, "model.cross_attention_heads=4")),
    Run("trial_hybrid_short_gate", "multi30k_hybrid", EN_DE, 28, "trial", (*FEEDING, "model.context_fusion=gate")),
    Run("trial_g2p_dut", "sigmorphon_g2p", sigmorphon("medium/dut"), 9, "trial", ("training.num_train_epochs=30",)),
    Run("trial_g2p_dut_previous", "sigmorphon_g2p", sigmorphon("medium/dut"), 9, "trial",
        ("training.num_train_epochs=30", "model.input_feeding=false", "model.attend_with=previous_state")),
    Run("trial_g2p_dut_dropout_0.5", "sigmorphon_g2p", sigmorphon("medium/dut"), 9, "trial",
        ("training.num_train_epochs=30", "model.dropout=0.5")),
    Run("trial_g2p_dut_transformer", "sigmorphon_g2p", sigmorphon("medium/dut"), 12, "trial",
        ("training.num_train_epochs=30",
         "model={encoder_type: transformer, decoder_type: transformer, cross_attention_type: scaled_dot_product, "
         "encoder_layers: 4, decoder_layers: 4, d_model: 128, encoder_ffn_dim: 512, decoder_ffn_dim: 512, "
         "encoder_attention_heads: 4, decoder_attention_heads: 4, dropout: 0.3}")),
    Run("trial_g2p_eng_us_384", "sigmorphon_g2p", sigmorphon("high/eng_us"), 60, "trial",
        ("training.num_train_epochs=30", "model.dropout=0.4", "model.d_model=384", "validation.limit=1500")),
)  # fmt: skip

RUNS = {run.name: run for run in (*MAIN, *ABLATION, *TRIALS)}

EN_DE_TARGETS = {"test_2016_flickr": 41.5, "test_2017_flickr": 34, "test_2017_mscoco": 30.5}

ROWS = (
    Row("Multi30k de-en, recurrent + additive", "28.1 (bentrevett, lower-cased tokens, unchecked)", ("de_en_bahdanau",),
        {"test_2016_flickr": 37}),
    Row("Multi30k de-en, Transformer", "36.5 (bentrevett, lower-cased tokens, unchecked)", ("de_en_transformer",),
        {"test_2016_flickr": 41}),
    Row("Multi30k en-de, recurrent + additive", "about 38.1 (LIUM-CVC 2017, unchecked)", ("en_de_bahdanau",),
        {"test_2016_flickr": 38.5}),
    Row("Multi30k en-de, Transformer-tiny", "about 41.0 / 33.4 / 29.9 (Wu et al. 2021, unchecked)",
        ("en_de_transformer",), EN_DE_TARGETS),
    Row("Multi30k en-de, Transformer as wide as the hybrid", "none at this size", ("en_de_transformer_wide",)),
    Row("Multi30k en-de, hybrid", "none at this size", ("en_de_hybrid",),
        near=("en_de_transformer_wide", 0.5)),
    Row("SIGMORPHON 2021, eng_us", "41.94 (its baseline, unchecked)", ("g2p_eng_us",), {"test": 38}),
    Row("SIGMORPHON 2021, mean of ten medium languages", "10.64 (its baseline, unchecked)",
        tuple(f"g2p_{name}" for name in MEDIUM), {"test": 10}),
    Row("CMUdict, 1 word in 20 as test", "no common split", ("cmudict",), {}),
)  # fmt: skip
