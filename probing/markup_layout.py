"""Put the tags of a line back into its translation, by word alignment.

- An element surrounds the run of pieces that its words went to (`best_run` where they come apart). One that holds all
  of its parent's text holds all of it again; one whose words went nowhere stands empty between its neighbours.
- What stands by itself (void elements, comments, CDATA, entities that are white space) keeps to the piece it was
  attached to, else to the piece that followed it; at the start or end of its parent it stays there.
- An element that begins or ends on another line reaches to the start or end of this one.

So every tag comes out exactly once, byte for byte, elements nest as they did, and no tag stands inside a word.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from .markup import MarkedLine, Node
from .spans import PieceAlignment, best_run

_MUST_BE_WRITTEN = {"&": "&amp;", "<": "&lt;"}
_FORBIDDEN = -(10**6)


def render(line: MarkedLine, pieces: PieceAlignment) -> str:
    """Return the translation of a line with the line's tags.

    Args:
        pieces: of `line.text` and its translation.
    """
    items = _Layout(line.text, pieces).items(line.root)
    lead = line.raw[: len(line.raw) - len(line.raw.lstrip(" \t\r"))]
    tail = line.raw[len(line.raw.rstrip(" \t\r")) :]
    return lead + _write(items, pieces.target_text, line.spelling) + tail


@dataclass
class _Item:
    """A node in its place: the characters [start, end) of the target."""

    node: Node
    start: int
    end: int
    children: list["_Item"]


class _Layout:
    """Finds a place in the target for every node."""

    def __init__(self, text: str, pieces: PieceAlignment) -> None:
        self.source_text, self.target_text = text, pieces.target_text
        self.source, self.target = pieces.source, pieces.target
        self.sources_of = pieces.sources_of
        self.starts = [piece.start for piece in self.source]
        self.ends = [piece.end for piece in self.source]

    def items(self, root: Node) -> list[_Item]:
        """Return the places of the root's children, and theirs, from left to right."""
        return self._children(root, (0, len(self.source)), (0, len(self.target)), (0, len(self.target_text)))

    def _children(
        self, parent: Node, sources: tuple[int, int], region: tuple[int, int], room: tuple[int, int]
    ) -> list[_Item]:
        """Place the children of a node that has the source pieces [sources), the target pieces [region) and the target
        characters [room)."""
        held = self._pieces_of(parent.children, sources)
        runs = self._runs(parent.children, held, sources, region)
        items: list[_Item | None] = []
        for child, run, its_sources in zip(parent.children, runs, held, strict=True):
            if run is None:
                items.append(None)
                continue
            start, end = self._characters(run)
            its_room = (room[0] if child.to_start else start, room[1] if child.to_end else end)
            items.append(_Item(child, *its_room, self._children(child, its_sources, run, its_room)))
        placed = [item for item in items if item is not None]
        for number, child in enumerate(parent.children):
            if items[number] is None:
                at = self._point(child, sources, region, room, placed)
                items[number] = _Item(child, at, at, self._children(child, (0, 0), (0, 0), (at, at)))
        done = [item for item in items if item is not None]
        return sorted(done, key=lambda item: (item.start, item.end))

    def _pieces_of(self, children: Sequence[Node], sources: tuple[int, int]) -> list[tuple[int, int]]:
        """Return the source pieces of each child; one that two children share goes to the first."""
        held = []
        free, last = sources
        for child in children:
            start = max(free, bisect_left(self.ends, child.start + 1))
            end = min(last, bisect_left(self.starts, child.end)) if child.end > child.start else start
            held.append((start, max(start, end)))
            free = max(free, held[-1][1])
        return held

    def _runs(
        self,
        children: Sequence[Node],
        held: Sequence[tuple[int, int]],
        sources: tuple[int, int],
        region: tuple[int, int],
    ) -> list[tuple[int, int] | None]:
        """Return the target pieces [first, last) of each child; those of different children are apart."""
        runs: list[tuple[int, int] | None] = [None] * len(children)
        owner = self._owners(held, region)
        # What began or ends on another line takes its side of this one first.
        order = sorted(
            range(len(children)), key=lambda number: not (children[number].to_start or children[number].to_end)
        )
        for number in order:
            child = children[number]
            if held[number] == sources and sources[0] < sources[1] and region[0] < region[1]:
                runs[number] = region
                continue
            votes = [0 if each is None else 1 if each == number else -1 if each < 0 else _FORBIDDEN for each in owner]
            found = best_run(votes, *region)
            if found is None:
                continue
            first, last = found
            if child.to_start:
                first = region[0]
                region = (last, region[1])
            elif child.to_end:
                last = region[1]
                region = (region[0], first)
            runs[number] = (first, last)
        return runs

    def _owners(self, held: Sequence[tuple[int, int]], region: tuple[int, int]) -> list[int | None]:
        """Return for each target piece of the region the child that has at least half of its source pieces, -1 if none
        has, None outside the region and without source pieces."""
        owners: list[int | None] = [None] * len(self.target)
        for target in range(*region):
            found = self.sources_of[target]
            if found:
                shares = (2 * sum(start <= source < end for source in found) >= len(found) for start, end in held)
                owners[target] = next((number for number, enough in enumerate(shares) if enough), -1)
        return owners

    def _point(
        self,
        child: Node,
        sources: tuple[int, int],
        region: tuple[int, int],
        room: tuple[int, int],
        placed: Sequence[_Item],
    ) -> int:
        """Return where in the target a node without a piece of its own goes."""
        here = min(max(bisect_left(self.ends, child.start + 1), sources[0]), sources[1])
        if child.to_start or here == sources[0]:
            at = room[0]
        elif child.to_end or here == sources[1]:
            at = room[1]
        else:
            at = self._between(child, here, sources, region, room)
        for item in placed:
            if item.start < at < item.end:
                at = item.start if at - item.start < item.end - at else item.end
        return at

    def _between(
        self, child: Node, here: int, sources: tuple[int, int], region: tuple[int, int], room: tuple[int, int]
    ) -> int:
        before = self.source_text[child.start - 1 : child.start]
        after = self.source_text[child.start : child.start + 1]
        to_left = not before.isspace() and (after.isspace() or not after)
        if child.end > child.start:
            # Its words went nowhere, or where another element has them.
            to_left, following = False, bisect_left(self.starts, child.end)
        else:
            following = here
        sides = ((range(here - 1, sources[0] - 1, -1), True), (range(following, sources[1]), False))
        for neighbours, from_left in sides if to_left else reversed(sides):
            for source in neighbours:
                linked = [t for t in range(*region) if source in self.sources_of[t]]
                if linked:
                    return self.target[linked[-1]].end if from_left else self.target[linked[0]].start
        return room[1]

    def _characters(self, run: tuple[int, int]) -> tuple[int, int]:
        return self.target[run[0]].start, self.target[run[1] - 1].end


def _write(items: Sequence[_Item], text: str, spelling: dict[str, str]) -> str:
    out: list[str] = []
    position = 0

    def up_to(end: int) -> None:
        nonlocal position
        out.append(escape(text[position:end], spelling))
        position = max(position, end)

    def write(item: _Item) -> None:
        nonlocal position
        up_to(item.start)
        if item.node.is_space:
            if out and out[-1].endswith(" "):
                out[-1] = out[-1][:-1]
            elif text[position : position + 1] == " ":
                position += 1
        out.append(item.node.open)
        for child in item.children:
            write(child)
        up_to(item.end)
        out.append(item.node.close)

    for item in items:
        write(item)
    up_to(len(text))
    return "".join(out)


def escape(text: str, spelling: dict[str, str] | None = None) -> str:
    """Write text as markup: & and < as entities, > after ]], and other characters as `spelling` has them."""
    known = _MUST_BE_WRITTEN | (spelling or {})
    written = "".join(known.get(character, character) for character in text)
    return written.replace("]]>", "]]&gt;")
