"""The state machine of a choice: whatever the pieces, the deltas add up to the same answer."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.sampling import SamplingParams
from octavo.engine.stream import TokenDelta
from octavo.serving.choice import Choice, ChoiceDelta
from octavo.serving.logprobs import TokenNames
from octavo.testing.scripted.script import Piece, Reply, Script
from octavo.testing.scripted.tokenizer import ScriptedTokenizer
from octavo.types import PositionLogprobs, TokenLogprob

MARK = Piece(special="<|mark|>")
BOS, EOS_ = Piece(special="<s>"), Piece(special="</s>")


def tokenizer_of(pieces: Sequence[str | bytes | Piece]) -> tuple[ScriptedTokenizer, list[int]]:
    """A tokenizer and the ids of these pieces."""
    made = [Piece(hex=p.hex()) if isinstance(p, bytes) else p for p in pieces]
    reply = Reply(made)
    tokenizer = ScriptedTokenizer(Script([reply]))
    return tokenizer, [tokenizer.piece_id(token) for token in reply.tokens()]


def scores(ids: Sequence[int]) -> list[PositionLogprobs]:
    return [PositionLogprobs(TokenLogprob(i, -0.5, 1), (TokenLogprob(i, -0.5, 1),)) for i in ids]


def speak(
    pieces: Sequence[str | bytes | Piece],
    *,
    cuts: Sequence[int] = (),
    end: str = "stop",
    with_scores: bool = False,
    prefix: str = "",
    **params: object,
) -> tuple[list[ChoiceDelta], Choice]:
    """All deltas of an answer whose tokens come in deltas of these sizes (then one by one)."""
    tokenizer, ids = tokenizer_of(pieces)
    if end == "stop":
        ids = [*ids, tokenizer.eos_id]
    settings = SamplingParams(max_tokens=len(ids), **params)  # type: ignore[arg-type]
    choice = Choice(tokenizer, settings, TokenNames(tokenizer), prefix=prefix)
    deltas: list[ChoiceDelta] = []
    sizes = iter(cuts)
    while ids and not choice.finished:
        size = next(sizes, 1)
        now, ids = ids[:size], ids[size:]
        last = end if not ids else None
        logprobs = scores(now) if with_scores else None
        deltas += choice.feed(TokenDelta(now, logprobs, finish_reason=last))  # type: ignore[arg-type]
    return deltas, choice


def whole(deltas: Sequence[ChoiceDelta]) -> ChoiceDelta:
    total = ChoiceDelta()
    for delta in deltas:
        total.add(delta)
    return total


PIECES = st.lists(
    st.one_of(
        st.text("ab<>é😊\ufffd", min_size=1, max_size=3),
        st.binary(min_size=1, max_size=3),
        st.just(MARK),
    ),
    min_size=1,
    max_size=12,
)
STOPS = st.lists(st.text("ab<>é", min_size=1, max_size=4), max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    PIECES, STOPS, st.lists(st.integers(1, 5), max_size=6), st.integers(1, 5), st.booleans(),
    st.integers(0, 4), st.booleans(), st.sampled_from(["stop", "length", "abort"]),
)  # fmt: skip
def test_the_answer_does_not_depend_on_how_it_comes(
    pieces, stops, cuts, interval, include, min_tokens, skip, end
):
    fields = {
        "stop": tuple(stops),
        "include_stop_str_in_output": include,
        "min_tokens": min_tokens,
        "skip_special_tokens": skip,
    }
    plain, _ = speak(pieces, end=end, with_scores=True, **fields)
    cut, choice = speak(
        pieces, cuts=cuts, end=end, with_scores=True, stream_interval=interval, **fields
    )
    assert whole(cut) == whole(plain)
    assert [d.finish_reason is None for d in cut] == [True] * (len(cut) - 1) + [False]
    assert all(d.text for d in cut[:-1]), "only the last piece may be empty"
    assert choice.num_tokens == whole(cut).num_tokens
    regular = [] if skip else None
    tokenizer, ids = tokenizer_of(pieces)
    text = tokenizer.decode(ids, skip_special_tokens=regular is not None)
    if whole(cut).finish_reason == end and not isinstance(whole(cut).stop_reason, str):
        assert whole(cut).text == text, "nothing lost, nothing invented"
    elif not include:
        assert text.startswith(whole(cut).text + str(whole(cut).stop_reason))


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_interval_first_at_once_then_every_k_then_the_rest(interval):
    deltas, _ = speak(list("abcdefg"), cuts=[7, 1], stream_interval=interval)
    expected = {
        1: [*list("abcdefg"), ""],
        2: ["a", "bc", "de", "fg", ""],
        3: ["a", "bcd", "efg", ""],
    }
    assert [d.text for d in deltas] == expected[interval]


def test_characters_are_whole():
    deltas, _ = speak(["a", b"\xf0\x9f", b"\x98\x8a", "b"])
    assert [d.text for d in deltas] == ["a", "😊", "b", ""]


def test_half_a_character_at_the_end():
    assert whole(speak(["a", b"\xf0\x9f"])[0]).text == "a\ufffd"


def test_stop_string_is_cut_exactly_and_counted_up_to_its_token():
    deltas, choice = speak(["ABC", "DEF", "G", "HI", "J"], stop=("zz", "FGH"))
    answer = whole(deltas)
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("ABCDE", "stop", "FGH")
    assert choice.num_tokens == 4


def test_tokens_behind_a_stop_string_are_dropped():
    _, choice = speak(["a", "STOP", "b", "c"], cuts=[4], stop=("STOP",), end="length")
    assert choice.num_tokens == 2


def test_held_text_comes_out_at_the_end():
    for end in ("length", "abort", "stop"):
        assert whole(speak(["ab", "<"], stop=("<|",), end=end)[0]).text == "ab<"


def test_min_tokens_comes_before_stop_strings():
    deltas, choice = speak(["la "] * 9, stop=("la la",), min_tokens=5)
    assert (whole(deltas).text, choice.num_tokens) == ("la la la ", 5)


def test_end_token_is_counted_without_text_or_entry():
    deltas, choice = speak(["a", "b"], with_scores=True, skip_special_tokens=False)
    answer = whole(deltas)
    assert (answer.text, choice.num_tokens, len(answer.logprobs)) == ("ab", 3, 2)


def test_entries_know_where_their_tokens_stand():
    deltas, _ = speak(
        ["né", b"\xe6\x97", b"\xa5", MARK, "!"], with_scores=True, prefix="> ", end="length"
    )
    assert whole(deltas).text == "> né日!"
    assert [e.offset for e in whole(deltas).logprobs] == [2, 4, 4, 5, 5]


def test_entries_go_with_their_text():
    deltas, _ = speak(["a", "<", "b"], stop=("<|",), with_scores=True)
    assert [(d.text, len(d.logprobs)) for d in deltas] == [("a", 1), ("<b", 2), ("", 0)]


@pytest.mark.parametrize(
    ("prompt", "pieces", "offsets"),
    [
        ("né b", [b"n", b"\xc3", b"\xa9", b" b"], [0, 1, 1, 2]),
        ("hi you", [BOS, b" hi", b" you"], [0, 0, 2]),  # as SentencePiece does: a space in front
        ("s", [BOS, b" s", EOS_], [0, 0, 1]),
        ("<s>s", [BOS, b"s"], [0, 3]),  # written by the client
        ("", [BOS], [0]),
        ("ab", [b"other", b" text"], [0, 0]),  # not what it spells: still inside
    ],
)
def test_offsets_of_an_echoed_prompt_are_in_its_text(prompt, pieces, offsets):
    tokenizer, ids = tokenizer_of(pieces)
    params = SamplingParams(max_tokens=1, logprobs=0)
    names = TokenNames(tokenizer)
    choice = Choice(tokenizer, params, names, prefix=prompt, prompt_ids=ids)
    known: list[PositionLogprobs | None] = [None, *scores(ids[1:])]
    delta = TokenDelta([ids[0]], scores(ids[:1]), known, finish_reason="length")
    told = whole(choice.feed(delta))
    assert [entry.offset for entry in told.logprobs] == [*offsets, len(prompt)]
