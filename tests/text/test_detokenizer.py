"""Incremental decoding equals decoding at once, and no character comes out too early."""

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.detokenizer import Detokenizer


class Bytes:
    """A vocabulary of the 256 bytes and one special token."""

    special_ids = frozenset({256})

    def token_bytes(self, token_id: int) -> bytes:
        return b"<s>" if token_id == 256 else bytes([token_id])


STARTS = b"A\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x8a\xff\xc0\xed\xa0\x80\xf4\x90"
HOSTILE = st.lists(st.sampled_from(STARTS) | st.integers(0, 255))


@settings(max_examples=400)
@given(HOSTILE)
def test_equals_decoding_at_once(ids: list[int]) -> None:
    whole = bytes(ids).decode("utf-8", "replace")
    detokenizer = Detokenizer(Bytes())
    text = ""
    for i, token in enumerate(ids):
        text += detokenizer.feed([token])
        assert whole.startswith(text)
        for rest in (b"", b"\x80\x80\x80", b"\xbf", b"A"):  # nothing later changes what was said
            assert (bytes(ids[: i + 1]) + rest).decode("utf-8", "replace").startswith(text)
    assert text + detokenizer.flush() == whole


@given(st.text(), st.integers(1, 7))
def test_texts_in_pieces(text: str, size: int) -> None:
    data = list(text.encode("utf-8", "replace"))
    detokenizer = Detokenizer(Bytes())
    pieces = [detokenizer.feed(data[i : i + size]) for i in range(0, len(data), size)]
    assert "".join(pieces) == bytes(data).decode()
    assert detokenizer.flush() == ""


def test_special_tokens_are_skipped_or_shown() -> None:
    assert Detokenizer(Bytes()).feed([65, 256, 66]) == "AB"
    assert Detokenizer(Bytes(), skip_special_tokens=False).feed([65, 256, 66]) == "A<s>B"


def test_characters_are_held_until_they_are_whole() -> None:
    detokenizer = Detokenizer(Bytes())
    assert [detokenizer.feed([b]) for b in "a😊".encode()] == ["a", "", "", "", "😊"]
    assert detokenizer.feed([0xF0, 0x9F]) == ""
    assert detokenizer.flush() == "\ufffd"
