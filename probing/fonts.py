"""Fonts for text of any script in pictures: one for each character, and what stands for characters that no font has.

matplotlib brings DejaVu Sans (Latin, Greek, Cyrillic, Hebrew, Arabic). For what it lacks `FALLBACK_FONTS` are tried in
this order, then every other font that is installed. A character without a font is never drawn as an empty box: its
code point stands in its place, `[U+13000]`.
"""

from collections.abc import Iterable
from functools import lru_cache

OWN_FONT = "DejaVu Sans"
FALLBACK_FONTS = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans Hebrew",
    "Noto Naskh Arabic",
    "Noto Sans Arabic",
    "Noto Emoji",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Arial Unicode MS",
)
_CODES_SHOWN = 6


def drawable_text(text: str) -> str:
    """Return `text` with the code points of runs of characters that no font has, e.g. `[U+13000 13001]`."""
    parts: list[str] = []
    run: list[str] = []
    for character in [*text, ""]:
        if character and font_of(character) is None:
            run.append(f"{ord(character):04X}")
            continue
        if run:
            parts.append(f"[U+{' '.join(run[:_CODES_SHOWN])}{' …' if len(run) > _CODES_SHOWN else ''}]")
            run = []
        parts.append(character)
    return "".join(parts)


def undrawable(texts: Iterable[str]) -> str:
    """Return the code points of `texts` that no font has, the first few; empty if there is none."""
    codes = sorted({ord(character) for text in texts for character in text if font_of(character) is None})
    shown = " ".join(f"U+{code:04X}" for code in codes[:_CODES_SHOWN])
    return shown + (f" and {len(codes) - _CODES_SHOWN} more" if len(codes) > _CODES_SHOWN else "")


def families(text: str) -> list[str]:
    """Return the font families that `text` needs, DejaVu Sans first."""
    needed = (font_of(character) for character in text)
    return list(dict.fromkeys((OWN_FONT, *(family for family in needed if family))))


@lru_cache(maxsize=8192)
def font_of(character: str) -> str | None:
    """Return a font family that has the character, None if there is none. Control characters are never drawable."""
    if not character.isprintable():
        return None
    from matplotlib.font_manager import get_font

    for family, path in _fonts():
        if get_font(path).get_char_index(ord(character)):
            return family
    return None


@lru_cache(maxsize=1)
def _fonts() -> tuple[tuple[str, str], ...]:
    """Return (family, file) of the upright regular fonts installed, preferred ones first."""
    from matplotlib.font_manager import fontManager

    files = {
        font.name: str(font.fname)
        for font in fontManager.ttflist
        if font.style == "normal" and font.weight in (400, "normal", "regular") and font.stretch == "normal"
    }
    # matplotlib's own "Last Resort" draws a box with a code in it for every character.
    files = {name: file for name, file in files.items() if not name.startswith("Last Resort")}
    first = [name for name in (OWN_FONT, *FALLBACK_FONTS) if name in files]
    return tuple((name, files[name]) for name in dict.fromkeys((*first, *sorted(files))))
