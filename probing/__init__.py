"""From a model to alignments, scores and pictures; works on any Hugging Face encoder-decoder.

Vocabulary: a link is a pair `(i, j)`, 0-based, source word first; a sentence's links are a frozenset of them. A
sentence is a raw string or a list of words. `matplotlib` is imported only by the functions that draw with it.
"""

from .aligned_pair import AlignedPair, Gold
from .alignment import align
from .attention_maps import WEIGHTS, AttentionMaps
from .baselines import Ibm1, diagonal_links
from .bertviz_pages import BertvizPage, bertviz_page, head_view, model_view
from .bitext import Bitext, BitextLine, iterate_bitext
from .breakdowns import score_by_fertility, score_by_length, without_punctuation
from .choices import alignment_heads
from .chosen_maps import choice_in_use, describe_heads, extract_chosen
from .commands import parse_heads, parse_layer
from .comparison import Comparison, compare_scores
from .directions import Aligner, DirectionMatrices, LearnedJumps, PairAlignment, Reading
from .explanation_formats import to_html, to_html_list, to_latex, to_markdown, to_text
from .extraction import ROWS, SentenceError, default_rows, extract, row_offset
from .faithfulness import Faithfulness, measure_faithfulness
from .faithfulness_commands import tested_heads
from .fonts import FALLBACK_FONTS
from .formats import (
    BLANK_ENDS,
    FORMATS,
    LinkFile,
    format_links,
    format_of,
    iterate_pairs,
    read_gold,
    read_link_file,
    read_links,
    write_atomically,
    write_bytes_atomically,
    write_links,
    write_pairs,
)
from .generation import sequence_attentions
from .head_choice import HeadChoice, ScoredCandidate, choose_by_aer, choose_by_agreement
from .head_fit import FitReport, HeadFit, calibration_error, fit_heads
from .head_picture import draw_head_figure, save_head_picture
from .head_report import HeadReport, head_distances, report_heads
from .head_words import mean_of_heads
from .heatmap import PICTURE_SUFFIXES, draw_heatmap, save_heatmap
from .heatmap_svg import HEATMAP_CSS, SentenceView, drawable, heatmap_svg, legend_svg
from .hmm import JumpModel, hmm_links, hmm_posteriors, learn_jumps
from .importance import Importance, head_importance
from .languages import Languages, set_languages
from .lexicon import LEXICON_COLUMNS, Lexicon, LexiconEntry, build_lexicon
from .link_lines import LINK_LINES_CSS, link_lines_svg
from .link_types import Link, Links, reverse_links
from .links import (
    EXTRACTIONS,
    argmax_links,
    corpus_jumps,
    extract_corpus_links,
    extract_links,
    link_probabilities,
    relative_links,
    threshold_links,
)
from .maps_files import iterate_maps, read_maps_record, write_maps
from .markup import MarkedDocument, MarkedLine, parse_markup
from .markup_commands import transfer_markup, translate_markup
from .matching import itermax_links, match_links, mutual_links
from .model_signals import ModelSignals, model_signals
from .pair_attentions import PairAttentions, pair_attentions
from .pair_view import PairView, ViewedMap, ViewLevel, pair_view
from .pharaoh import parse_pharaoh
from .planted_faults import FAULTS, plant_faults, roc_auc
from .playground import playground_page
from .progress import progress_bar
from .provenance import library_versions, model_record
from .quality import LineQuality, by_rank, measure_quality
from .refusals import refused
from .resampling import RESAMPLES, bootstrap_totals
from .saved_choice import CHOICE_FILE, AlignmentChoice, save_choice, saved_choice
from .scaling import (
    SCALING_MEASURES,
    ScalingRow,
    draw_scaling,
    draw_scaling_measure,
    model_scaling,
    random_scaling,
)
from .scores import AlignmentScore, alignment_error_rate, f_measure, score_intervals, score_links, soft_aer
from .serve import FileLinks, ReadingOptions, ServedModel, pair_pictures
from .shared_metrics import aer_module_path
from .sinks import SINKS, SinkReport, SinkTally, final_punctuation, sink_report
from .soft_matrices import iterate_matrices, write_matrices
from .space import write_space
from .spans import PieceAlignment, pieces_of_links, pieces_of_maps, transfer
from .sweep_choices import GoldText, SweepGrid, SweepPoint, SweepResult, score_reading, sweep
from .symmetrization import COMBINATIONS, SYMMETRIZATIONS, combine, symmetrize
from .system_comparison import SystemComparison, SystemDifference, SystemScore, compare_systems
from .tables import TABLE_SUFFIXES, Table, write_table
from .term_check import Term, TermChecker, TermOccurrence, read_terms
from .tokens import Sentence, TokenizedText, tokenize
from .transport import transport_links, transport_plan
from .value_norms import ValueNorms
from .verses import Verse, iterate_verses, unmerged
from .view import PAGE_LIMIT, write_view
from .walk_steps import walk_steps, walk_title
from .walkthrough import WALK_CSS, Walk, walk_html, walk_page, walk_through
from .words import SPECIALS, SUBWORDS, WordMatrix, to_word_links, to_words
from .worked_example import WorkedExample, worked_example
from .worked_steps import example_steps, example_title
from .worked_updates import WorkedUpdates, update_steps, worked_updates

__all__ = [
    "align",
    "Aligner",
    "Reading",
    "PairAlignment",
    "DirectionMatrices",
    "LearnedJumps",
    "alignment_heads",
    "choose_by_agreement",
    "choose_by_aer",
    "HeadChoice",
    "ScoredCandidate",
    "fit_heads",
    "HeadFit",
    "FitReport",
    "calibration_error",
    "AlignmentChoice",
    "CHOICE_FILE",
    "save_choice",
    "saved_choice",
    "choice_in_use",
    "parse_heads",
    "parse_layer",
    "extract_chosen",
    "describe_heads",
    "mean_of_heads",
    "report_heads",
    "HeadReport",
    "head_distances",
    "draw_head_figure",
    "save_head_picture",
    "head_importance",
    "Importance",
    "measure_faithfulness",
    "Faithfulness",
    "tested_heads",
    "extract",
    "AttentionMaps",
    "WEIGHTS",
    "ValueNorms",
    "Languages",
    "set_languages",
    "write_maps",
    "iterate_maps",
    "read_maps_record",
    "sequence_attentions",
    "TokenizedText",
    "tokenize",
    "Sentence",
    "SentenceError",
    "ROWS",
    "default_rows",
    "row_offset",
    "to_words",
    "to_word_links",
    "WordMatrix",
    "SPECIALS",
    "SINKS",
    "SinkReport",
    "SinkTally",
    "sink_report",
    "final_punctuation",
    "SUBWORDS",
    "Link",
    "Links",
    "argmax_links",
    "mutual_links",
    "threshold_links",
    "relative_links",
    "itermax_links",
    "match_links",
    "transport_plan",
    "transport_links",
    "JumpModel",
    "learn_jumps",
    "hmm_links",
    "hmm_posteriors",
    "EXTRACTIONS",
    "extract_links",
    "extract_corpus_links",
    "corpus_jumps",
    "link_probabilities",
    "reverse_links",
    "symmetrize",
    "SYMMETRIZATIONS",
    "combine",
    "COMBINATIONS",
    "Gold",
    "AlignedPair",
    "LinkFile",
    "FORMATS",
    "BLANK_ENDS",
    "format_of",
    "iterate_pairs",
    "parse_pharaoh",
    "write_pairs",
    "iterate_matrices",
    "write_matrices",
    "read_gold",
    "read_links",
    "read_link_file",
    "write_links",
    "write_atomically",
    "write_bytes_atomically",
    "format_links",
    "AlignmentScore",
    "score_links",
    "score_intervals",
    "alignment_error_rate",
    "f_measure",
    "soft_aer",
    "aer_module_path",
    "score_by_length",
    "score_by_fertility",
    "without_punctuation",
    "Comparison",
    "compare_scores",
    "SystemComparison",
    "SystemScore",
    "SystemDifference",
    "compare_systems",
    "sweep",
    "SweepGrid",
    "SweepPoint",
    "SweepResult",
    "GoldText",
    "score_reading",
    "Table",
    "write_table",
    "TABLE_SUFFIXES",
    "model_record",
    "library_versions",
    "progress_bar",
    "refused",
    "bootstrap_totals",
    "RESAMPLES",
    "diagonal_links",
    "Ibm1",
    "draw_heatmap",
    "save_heatmap",
    "PICTURE_SUFFIXES",
    "SentenceView",
    "heatmap_svg",
    "legend_svg",
    "drawable",
    "HEATMAP_CSS",
    "write_view",
    "PAGE_LIMIT",
    "PairView",
    "ViewLevel",
    "ViewedMap",
    "pair_view",
    "PairAttentions",
    "pair_attentions",
    "head_view",
    "model_view",
    "bertviz_page",
    "BertvizPage",
    "FALLBACK_FONTS",
    "link_lines_svg",
    "LINK_LINES_CSS",
    "ServedModel",
    "ReadingOptions",
    "FileLinks",
    "pair_pictures",
    "write_space",
    "WALK_CSS",
    "Walk",
    "walk_html",
    "walk_page",
    "walk_through",
    "walk_steps",
    "walk_title",
    "ScalingRow",
    "random_scaling",
    "model_scaling",
    "draw_scaling",
    "draw_scaling_measure",
    "SCALING_MEASURES",
    "to_text",
    "to_markdown",
    "to_latex",
    "to_html",
    "to_html_list",
    "playground_page",
    "WorkedExample",
    "example_steps",
    "example_title",
    "WorkedUpdates",
    "worked_updates",
    "update_steps",
    "worked_example",
    "transfer",
    "PieceAlignment",
    "pieces_of_links",
    "pieces_of_maps",
    "translate_markup",
    "transfer_markup",
    "parse_markup",
    "MarkedDocument",
    "MarkedLine",
    "Bitext",
    "BitextLine",
    "iterate_bitext",
    "Verse",
    "iterate_verses",
    "unmerged",
    "Lexicon",
    "LexiconEntry",
    "LEXICON_COLUMNS",
    "build_lexicon",
    "Term",
    "TermChecker",
    "TermOccurrence",
    "read_terms",
    "LineQuality",
    "measure_quality",
    "by_rank",
    "ModelSignals",
    "model_signals",
    "FAULTS",
    "plant_faults",
    "roc_auc",
]
