"""From a model to alignments, scores and pictures; works on any Hugging Face encoder-decoder.

Vocabulary: a link is a pair `(i, j)`, 0-based, source word first; a sentence's links are a frozenset of them. A
sentence is a raw string or a list of words. `matplotlib` is imported only by the functions that draw with it.
"""

from .aligned_pair import AlignedPair, Gold
from .alignment import align, alignment_heads
from .baselines import Ibm1, diagonal_links
from .breakdowns import score_by_fertility, score_by_length, without_punctuation
from .comparison import Comparison, compare_scores
from .extraction import ROWS, AttentionMaps, SentenceError, default_rows, extract, row_offset
from .formats import (
    FORMATS,
    LinkFile,
    format_links,
    format_of,
    iterate_pairs,
    read_gold,
    read_link_file,
    read_links,
    write_atomically,
    write_links,
    write_pairs,
)
from .generation import sequence_attentions
from .heatmap import PICTURE_SUFFIXES, draw_heatmap, save_heatmap
from .heatmap_svg import HEATMAP_CSS, SentenceView, heatmap_svg, legend_svg
from .hmm import JumpModel, hmm_links, hmm_posteriors, learn_jumps
from .link_types import Link, Links, reverse_links
from .links import (
    EXTRACTIONS,
    argmax_links,
    extract_corpus_links,
    extract_links,
    link_probabilities,
    relative_links,
    threshold_links,
)
from .matching import itermax_links, match_links, mutual_links
from .scores import AlignmentScore, alignment_error_rate, f_measure, score_links, soft_aer
from .soft_matrices import iterate_matrices, write_matrices
from .symmetrization import COMBINATIONS, SYMMETRIZATIONS, combine, symmetrize
from .tokens import Sentence, TokenizedText
from .transport import transport_links, transport_plan
from .view import write_view
from .walkthrough import WALK_CSS, Walk, walk_html, walk_page, walk_through
from .words import SPECIALS, SUBWORDS, WordMatrix, to_word_links, to_words
from .worked_example import WorkedExample, format_example, worked_example

__all__ = [
    "align",
    "alignment_heads",
    "extract",
    "AttentionMaps",
    "sequence_attentions",
    "TokenizedText",
    "Sentence",
    "SentenceError",
    "ROWS",
    "default_rows",
    "row_offset",
    "to_words",
    "to_word_links",
    "WordMatrix",
    "SPECIALS",
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
    "format_of",
    "iterate_pairs",
    "write_pairs",
    "iterate_matrices",
    "write_matrices",
    "read_gold",
    "read_links",
    "read_link_file",
    "write_links",
    "write_atomically",
    "format_links",
    "AlignmentScore",
    "score_links",
    "alignment_error_rate",
    "f_measure",
    "soft_aer",
    "score_by_length",
    "score_by_fertility",
    "without_punctuation",
    "Comparison",
    "compare_scores",
    "diagonal_links",
    "Ibm1",
    "draw_heatmap",
    "save_heatmap",
    "PICTURE_SUFFIXES",
    "SentenceView",
    "heatmap_svg",
    "legend_svg",
    "HEATMAP_CSS",
    "write_view",
    "WALK_CSS",
    "Walk",
    "walk_html",
    "walk_page",
    "walk_through",
    "WorkedExample",
    "format_example",
    "worked_example",
]
