"""Make the maps of many sentence pairs fit into one page, by a rule that the page states.

A weight w is kept as the number sqrt(w / scale) * 65535 in 16 bits, so that small weights, which most are, keep their
digits; its high and low bytes are two planes, each deflated (zlib) and written in base64. Where all does not fit,
the page drops, in this order and for every pair alike: the low planes, single heads between sub-words, single heads,
means, sub-words, and at last the pairs that came last.
"""

import base64
import json
import zlib
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .heatmap_svg import drawable
from .pair_view import HEAD, MEAN, READING, PairView, ViewedMap, ViewLevel

_STEPS = 6
_DROPPED = (
    "",
    "weights have 8 bits, so that a value is right to about 2 digits",
    "single heads are shown between words only",
    "single heads are left out",
    "the means of layers are left out",
    "sub-words are left out",
)
# The last step at which a kind of map is still there, by level.
_WORDS_UNTIL = {READING: 5, MEAN: 3, HEAD: 2}
_TOKENS_UNTIL = {READING: 4, MEAN: 3, HEAD: 1}
_LOW_PLANE_UNTIL = 0
# Level 9 takes ten times as long for 5 % less.
_DEFLATE_LEVEL = 6


class ViewPacker:
    """Take sentence pairs until their page would be larger than `limit` bytes.

    Attributes:
        step: how many of the things in the module's list had to go.
        left_out: whether a pair was refused, and with it all that follow.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.step = 0
        self.left_out = False
        self._pairs: list[dict[str, Any]] = []
        self._sizes = np.zeros(_STEPS, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pair: PairView) -> bool:
        """Take one more pair; return False if it does not fit any more, whatever is dropped.

        Raises:
            ValueError: the very first pair does not fit.
        """
        packed = _pack_pair(pair, self.step)
        sizes = np.array([len(to_json(_at_step(packed, step))) + 1 for step in range(_STEPS)])
        total = self._sizes + sizes
        if total[-1] > self.limit:
            if not self._pairs:
                raise UnusableError(
                    f"a pair of {len(pair.words.source)} source and {len(pair.words.target)} target words does not fit "
                    f"into a page of {self.limit:,} bytes; draw it as a picture (.png), or split it"
                )
            self.left_out = True
            return False
        self._sizes = total
        self._pairs.append(packed)
        while self._sizes[self.step] > self.limit:
            self.step += 1
            self._pairs = [_at_step(each, self.step, keep_limits=True) for each in self._pairs]
        return True

    def data(self) -> str:
        """Return the page's data as JSON."""
        pairs = [_at_step(pair, self.step) for pair in self._pairs]
        return to_json({"pairs": pairs, "tokens": any("tokens" in pair["levels"] for pair in pairs)})

    def reduced(self) -> str:
        """Return in words what had to go; empty if nothing did."""
        gone = list(_DROPPED[1 : self.step + 1])
        if self.left_out:
            gone.append(f"the pairs after the first {len(self)} are left out")
        return "; ".join(gone)

    def rule(self) -> str:
        """Return the rule of the module in the reader's words."""
        return (
            f"Maps and texts fit into {self.limit / 1e6:.1f} MB. A weight is kept as a number of 16 bits (the root of "
            "its share of the map's highest possible weight), deflated. Where that is too much, these go, in this "
            "order and for every pair alike, until the rest fits: the lower 8 bits, single heads between sub-words, "
            "single heads, the means of layers, sub-words, and at last the pairs at the end of the file. Of this page "
            f"{self.reduced() or 'nothing had to go'}. With fewer pairs, layers or heads more of each is kept."
        )


def to_json(value: object) -> str:
    """Return JSON that is safe inside a script element: no `<` at all, so neither `</script` nor `<!--`."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def _pack_pair(pair: PairView, step: int) -> dict[str, Any]:
    """Return the JSON-able form of a pair; `until` in maps and levels says how long they are kept."""
    levels = {"words": _pack_level(pair.words, _WORDS_UNTIL, step)}
    if pair.tokens is not None:
        levels["tokens"] = _pack_level(pair.tokens, _TOKENS_UNTIL, step)
    gold = None
    if pair.gold is not None:
        gold = {"sure": _flat(pair.gold.sure), "possible": _flat(pair.gold.possible)}
    return {"levels": levels, "gold": gold}


def _pack_level(level: ViewLevel, until: dict[str, int], step: int) -> dict[str, Any]:
    packed: dict[str, Any] = {
        "source": [drawable(word) for word in level.source],
        "target": [drawable(word) for word in level.target],
        "maps": [_pack_map(each, until[each.kind]) for each in level.maps if until[each.kind] >= step],
    }
    for side, words in (("source", level.source_word), ("target", level.target_word)):
        if words is not None:
            packed[side + "Word"] = [-1 if word is None else word for word in words]
    return packed


def _pack_map(viewed: ViewedMap, until: int) -> dict[str, Any]:
    weights = np.clip(np.asarray(viewed.matrix, dtype=np.float64), 0, None)
    scale = max(1.0, float(weights.max(initial=0)))
    numbers = np.rint(np.sqrt(weights / scale) * 65535).astype(np.uint16)
    group = "" if viewed.layer is None else f"layer {viewed.layer}"
    packed: dict[str, Any] = {
        "key": viewed.key,
        "name": viewed.name,
        "group": group or ("alignment" if viewed.kind == READING else "means"),
        "scale": scale,
        "links": _flat(viewed.links),
        "high": _plane(numbers >> 8),
        "low": _plane(numbers & 255),
        "until": until,
    }
    if viewed.head is not None:
        packed |= {"layer": viewed.layer, "head": viewed.head}
    return packed


def _at_step(pair: dict[str, Any], step: int, *, keep_limits: bool = False) -> dict[str, Any]:
    """Return a packed pair without what is dropped at `step`."""
    levels = {}
    for name, level in pair["levels"].items():
        maps = []
        for each in level["maps"]:
            if each["until"] >= step:
                dropped = set() if keep_limits else {"until"}
                dropped |= {"low"} if step > _LOW_PLANE_UNTIL else set()
                maps.append({key: value for key, value in each.items() if key not in dropped})
        if maps:
            levels[name] = {**level, "maps": maps}
    return {**pair, "levels": levels}


def _plane(numbers: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(numbers.astype(np.uint8).tobytes(), _DEFLATE_LEVEL)).decode("ascii")


def _flat(links: Any) -> list[int]:
    return [number for link in sorted(links) for number in link]
