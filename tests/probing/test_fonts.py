"""A font for each character, and code points where there is none."""

import pytest

from hf_seq2seq_attn.probing import FALLBACK_FONTS, fonts


def test_latin_greek_hebrew_and_arabic_need_nothing_installed() -> None:
    assert fonts.families("Straße λόγος שָׁלוֹם العربية") == ["DejaVu Sans"]
    assert "Noto Sans CJK SC" in FALLBACK_FONTS


def test_what_no_font_has_is_its_code_points() -> None:
    assert fonts.drawable_text("cats") == "cats"
    assert fonts.drawable_text("a\x07\x08b\x07") == "a[U+0007 0008]b[U+0007]"
    assert fonts.drawable_text("\x01\x02\x03\x04\x05\x06\x07") == "[U+0001 0002 0003 0004 0005 0006 …]"
    assert fonts.undrawable(["a\x07", "\x01", "b"]) == "U+0001 U+0007"
    assert fonts.undrawable(["plain"]) == ""
    assert fonts.undrawable([chr(n) for n in range(1, 9)]).endswith("U+0006 and 2 more")


def test_the_order_of_the_fallback_list_decides() -> None:
    fonts._fonts.cache_clear()
    families = [family for family, _ in fonts._fonts()]
    installed = [name for name in FALLBACK_FONTS if name in families]
    assert families[0] == fonts.OWN_FONT
    assert families[1 : 1 + len(installed)] == installed
    assert not any(family.startswith("Last Resort") for family in families)


def test_without_a_fallback_font_chinese_is_code_points(monkeypatch: pytest.MonkeyPatch) -> None:
    own = fonts._fonts()[:1]
    monkeypatch.setattr(fonts, "_fonts", lambda: own)
    fonts.font_of.cache_clear()
    try:
        assert fonts.drawable_text("猫 cat") == "[U+732B] cat"
    finally:
        fonts.font_of.cache_clear()
