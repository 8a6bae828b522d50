"""BertViz pages: every mixture of layouts, no address left, no token that runs, a size with a limit."""

import json
import re
import sys
from html import unescape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer, word_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import AttentionMaps, PairAttentions, TokenizedText, bertviz_page, head_view, model_view
from hf_seq2seq_attn.probing.bertviz_pages import WEIGHTS_IN_PAGE

HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!--<script>", "PYTHON_PARAMS", "}; // HACK", "\u202eabc", "'\"\\"]


def made(source: int, target: int, cross: tuple[int, int], own: tuple[int, int] | None = None) -> PairAttentions:
    """Return attention of given sizes: (layers, heads) of the cross-attention and of both self-attentions."""
    rng = np.random.default_rng(5)

    def weights(layout: tuple[int, int], rows: int, columns: int) -> np.ndarray:
        return rng.dirichlet(np.ones(columns), size=(*layout, rows)).astype(np.float32)

    def side(size: int, name: str) -> TokenizedText:
        return TokenizedText("", list(range(size)), ["?"] * size, [None] * size, [], [None] * size)

    names = [(HOSTILE * 100)[:count] for count in (source, target)]
    maps = AttentionMaps(
        weights(cross, target, source),
        side(source, "s"),
        side(target, "t"),
        "input",
        tuple(range(cross[0])),
        tuple(range(cross[1])),
    )
    selves = [None, None] if own is None else [weights(own, size, size) for size in (source, target)]
    return PairAttentions(*selves, maps, names[0], names[1], names[1])


def params_of(page: str) -> list[dict[str, Any]]:
    """Return what each view of a page draws."""
    return [json.loads(text) for text in re.findall(r"const params = (\{.*\});$", page, flags=re.MULTILINE)]


def tags_of(page: str) -> list[str]:
    """Return the elements of a page as a parser of HTML finds them."""
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    parser.close()
    return found


@pytest.mark.parametrize("view", ["head", "model"])
def test_mixed_layouts_are_each_drawn_whole(view: str) -> None:
    attentions = made(5, 4, (1, 1), (3, 2))
    page = bertviz_page(attentions, view)
    encoder, decoder, cross = params_of(page.html)
    for params, weights in (
        (encoder, attentions.encoder),
        (decoder, attentions.decoder),
        (cross, attentions.cross.weights),
    ):
        np.testing.assert_allclose(params["attention"][0]["attn"], weights, atol=5.1e-4)
    assert cross["attention"][0]["left_text"] == [*HOSTILE[:4]]
    assert encoder["include_layers"] == [0, 1, 2]
    assert len({params["root_div_id"] for params in (encoder, decoder, cross)}) == 3
    assert page.describe().startswith(f"BertViz {view} view of encoder: layers 0 to 2, heads 0, 1; decoder: ")
    assert "rows of the cross-attention: target token as decoder input" in page.html


@pytest.mark.parametrize("view", ["head", "model"])
def test_nothing_is_loaded_and_no_token_leaves_its_string(view: str) -> None:
    page = bertviz_page(made(6, 6, (2, 3), (2, 3)), view, title=HOSTILE[0]).html
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"src=(?!x onerror)|href=", outside)
    assert "cdnjs" not in page
    assert "<img" not in page
    assert page.count("</script") == tags_of(page).count("script") == 6
    assert not {"img", "link", "iframe", "svg", "b"} & set(tags_of(page))
    assert "default-src 'none'" in page
    assert "\u202e" not in page
    assert params_of(page)[0]["attention"][0]["left_text"] == [*HOSTILE[:4], "\ufffdabc", HOSTILE[5]]


def test_the_same_attention_gives_the_same_page() -> None:
    pages = [bertviz_page(made(3, 4, (2, 3), (1, 1))).html for _ in range(2)]
    assert pages[0] == pages[1]


def test_layers_and_heads_by_number() -> None:
    page = bertviz_page(made(5, 4, (4, 3), (2, 3)), "model", layers=[-1, 2], heads=[1])
    encoder, _, cross = params_of(page.html)
    assert (encoder["include_layers"], cross["include_layers"], cross["include_heads"]) == ([1], [2, 3], [1])
    assert page.shown["cross"] == "layers 2, 3, heads 1"
    only = bertviz_page(made(5, 4, (4, 3), (2, 3)), kinds=["cross"])
    assert len(params_of(only.html)) == 1
    # A layer that one kind has is no fault of the others.
    assert list(bertviz_page(made(5, 4, (4, 3), (2, 3)), layers=[3]).shown) == ["cross"]


def test_a_long_sentence_is_limited_and_the_page_says_so() -> None:
    page = bertviz_page(made(200, 210, (6, 8)), "model")
    assert page.left_out == "cross: the last 1 of 6 layers, to keep the page small"
    assert page.left_out in page.html
    (cross,) = params_of(page.html)
    assert cross["include_layers"] == [5]
    assert np.size(cross["attention"][0]["attn"]) <= WEIGHTS_IN_PAGE
    assert len(page.html) < 5_000_000
    tight = bertviz_page(made(40, 30, (2, 5)), limit=3000)
    assert "cross: the first 2 of 5 heads" in tight.left_out
    with pytest.raises(ValueError, match="cross attention of 30 by 40 tokens is more than the 1,000 weights"):
        bertviz_page(made(40, 30, (2, 5)), limit=1000)


def test_views_of_models_and_a_frame_for_notebooks() -> None:
    tokenizer = subword_tokenizer()
    foreign = head_view(foreign_model("t5"), tokenizer, "the cats love today.", "I love cats", title="T5")
    assert list(foreign.shown) == ["encoder", "decoder", "cross"]
    recurrent = tiny_model(encoder_type="gru", decoder_type="gru", vocab_size=73)
    own = model_view(recurrent, tokenizer, "the cats", "I love", layers=[0])
    assert list(own.shown) == ["cross"]
    shown = own._repr_html_()
    assert shown.startswith('<iframe srcdoc="')
    assert 'sandbox="allow-scripts"' in shown
    inside = re.search(r'srcdoc="([^"]*)"', shown)
    assert inside and unescape(inside[1]) == own.html


def test_what_cannot_be_drawn_is_refused() -> None:
    attentions = made(3, 3, (1, 1))
    with pytest.raises(ValueError, match="bertviz is 'neuron'; allowed are head, model"):
        bertviz_page(attentions, "neuron")
    with pytest.raises(ValueError, match="kinds holds 'encoder'; this model has cross"):
        bertviz_page(attentions, kinds=["encoder"])
    with pytest.raises(ValueError, match=r"layers \[7\] and heads None are in none of cross"):
        bertviz_page(attentions, layers=[7])


@pytest.mark.parametrize("module", ["bertviz", "mpld3", "xstatic"])
def test_what_is_missing_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError) as missing:
        bertviz_page(made(3, 3, (1, 1)))
    assert missing.value.name == module


def test_another_version_s_page_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import bertviz

    class Other:
        data = "<div></div><script src='https://somewhere'></script>"

    monkeypatch.setattr(bertviz, "head_view", lambda **_: Other)
    with pytest.raises(RuntimeError, match=r"install bertviz 1\.4\.1"):
        bertviz_page(made(3, 3, (1, 1)))


def test_a_hostile_token_of_a_model_stays_text() -> None:
    tokenizer = word_tokenizer()
    tokenizer.add_tokens([HOSTILE[0].replace(" ", "_")])
    model = tiny_model(vocab_size=73)
    page = head_view(model, tokenizer, HOSTILE[0].replace(" ", "_") + " w5", "w6 w7")
    assert "<img" not in page.html
    assert any("</script><img" in token for token in params_of(page.html)[0]["attention"][0]["left_text"])
