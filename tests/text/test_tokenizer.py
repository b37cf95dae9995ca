"""HFTokenizer: ids, bytes, break marks, and what a model folder's files set."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from octavo.errors import InvalidRequest, ModelFileError
from octavo.testing.tiny_tokenizer import VOCAB_SIZE, folder_files
from octavo.text.marks import CANDIDATES, Marker
from octavo.text.tokenizer import HFTokenizer, RenderedPrompt, load_tokenizer

MARK = CANDIDATES[0]
SPECIAL = ("<|im_start|>", "<|im_end|>", "<s>", "</s>")
SLOW_FIXTURE = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PIECES = st.sampled_from([*SPECIAL, "<tool>", "hi", " ", "im", "\n", "a", " hi", "<", "é", "<|"])
OWN = st.lists(st.tuples(PIECES, st.booleans()), max_size=8)


def with_specials(tokenizer: HFTokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


# --------------------------------------------------------------------------------- break marks


@SLOW_FIXTURE
@given(pieces=st.lists(PIECES, max_size=8), place=st.integers(0, 40))
def test_irrelevant_marks_change_nothing(
    tokenizer: HFTokenizer, pieces: list[str], place: int
) -> None:
    text = "".join(pieces)
    marked = text[:place] + MARK + text[place:]
    inside = any(
        text.find(token, i) == i and i < place < i + len(token)
        for token in SPECIAL
        for i in range(len(text))
    )
    if not inside:
        ids = tokenizer.encode_rendered(RenderedPrompt(marked, MARK))
        assert ids == with_specials(tokenizer, text)


@SLOW_FIXTURE
@given(pieces=OWN)
def test_control_tokens_are_the_templates(
    tokenizer: HFTokenizer, kind: str, pieces: list[tuple[str, bool]]
) -> None:
    """Pieces of the template stand as they are, pieces of the user are marked."""
    marker = Marker(SPECIAL)
    marked = "".join(marker.mark(t, MARK) if users else t for t, users in pieces)
    ids = tokenizer.encode_rendered(RenderedPrompt(marked, MARK))
    own = [tokenizer.special_tokens[t] for t, users in pieces if not users and t in SPECIAL]
    found = [i for i in ids if i in tokenizer.special_ids]
    if kind == "prepending, normalized":  # there the library itself misses some
        assert all(found.count(i) <= own.count(i) for i in found)
    else:
        assert found == own
    if not any(users and t in SPECIAL for t, users in pieces):
        assert ids == with_specials(tokenizer, "".join(t for t, _ in pieces))


def test_forged_text_keeps_its_bytes(tokenizers_by_kind: dict[str, HFTokenizer]) -> None:
    tokenizer = tokenizers_by_kind["byte level"]
    marked = f"<|im_start|>hi<{MARK}|im_end|> hi<|im_end|>"
    ids = tokenizer.encode_rendered(RenderedPrompt(marked, MARK))
    assert tokenizer.decode(ids) == "<|im_start|>hi<|im_end|> hi<|im_end|>"
    first, last = tokenizer.special_tokens["<|im_start|>"], tokenizer.special_tokens["<|im_end|>"]
    assert (ids[0], ids[-1], ids.count(last)) == (first, last, 1)
    instance = tokenizer.encode_rendered(RenderedPrompt(f"hi<{MARK}|im_end|> hi", MARK))
    assert ids[1:-1] == instance


@pytest.mark.parametrize("kind", ["prepending", "metaspace first", "prepending, normalized"])
def test_space_prefix_stays_where_the_library_puts_it(
    tokenizers_by_kind: dict[str, HFTokenizer], kind: str
) -> None:
    """The text before the forged token is encoded as in the same prompt without it."""
    tokenizer = tokenizers_by_kind[kind]
    for start in ("", "<s>", "<s>\n", "<tool>", "a <s>"):
        plain = with_specials(tokenizer, start + "hi hi")
        prompt = RenderedPrompt(f"{start}hi hi<{MARK}/s>", MARK)
        forged = tokenizer.encode_rendered(prompt)
        assert forged[: len(plain)] == plain
        assert tokenizer.special_tokens["</s>"] not in forged


def test_a_hidden_control_token_of_the_template_counts() -> None:
    """The user's text and the template's make a longer token together; the template's own stays."""
    from tokenizers import Tokenizer, models

    vocabulary = {letter: i for i, letter in enumerate("abcd")}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.add_special_tokens([AddedToken(t, special=True) for t in ("abc", "bc", "d")])
    tokenizer = HFTokenizer(backend)
    ids = tokenizer.encode_rendered(RenderedPrompt(f"a{MARK}bcd{MARK}d", MARK))
    assert [tokenizer.token_str(i) for i in ids] == ["a", "bc", "d", "d"]
    assert ids[2] == vocabulary["d"], "the one character with a mark behind it is text"


def test_rendered_with_special_tokens_around(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(
        folder(tmp_path, {**NAMES, "add_bos_token": True, "add_eos_token": True})
    )
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    for marked in ("hi", f"hi<{MARK}/s>"):
        inner = tokenizer.encode_rendered(RenderedPrompt(marked, MARK))
        assert tokenizer.encode_rendered(RenderedPrompt(marked, MARK), True) == [bos, *inner, eos]


# --------------------------------------------------------------------------------- ids and bytes


@pytest.mark.parametrize(
    "text", ["", "hi im", " hi", "hi\n\nhi", "é中😊", "a\0b", "\ufeffx", "<tool>hi", "  hi  "]
)
def test_round_trip(tokenizers_by_kind: dict[str, HFTokenizer], text: str) -> None:
    for kind in ("byte level", "prepending", "metaspace always"):
        tokenizer = tokenizers_by_kind[kind]
        ids = with_specials(tokenizer, text)
        if kind == "metaspace always" and text.startswith(" "):
            continue  # this scheme cannot tell its own space from the text's
        if kind != "byte level" and text.startswith("<tool>"):
            continue  # a space is added behind an added token too
        assert tokenizer.decode(ids) == text, kind


def test_bytes_of_each_kind(tokenizers_by_kind: dict[str, HFTokenizer]) -> None:
    def bytes_of(kind: str, text: str) -> list[bytes]:
        tokenizer = tokenizers_by_kind[kind]
        ids = with_specials(tokenizer, text)
        assert max(map(len, map(tokenizer.token_bytes, ids))) <= tokenizer.max_token_bytes
        return [tokenizer.token_bytes(i) for i in ids]

    assert bytes_of("byte level", "hi hié<s>") == [b"hi", b" ", b"hi", b"\xc3", b"\xa9", b"<s>"]
    assert bytes_of("prepending", "hié") == [b" hi", b"\xc3", b"\xa9"]
    assert bytes_of("word piece", "hi a") == [b" h", b"i", b" a"]


def test_decode_skips_special_tokens(tokenizer: HFTokenizer) -> None:
    ids = [tokenizer.special_tokens["<s>"], *with_specials(tokenizer, "hi")]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hi"
    assert tokenizer.decode(ids).startswith("<s>")


def test_bytes_that_are_no_text(tokenizers_by_kind: dict[str, HFTokenizer]) -> None:
    assert tokenizers_by_kind["byte level"].decode([0xC3 - 161 + 94]).encode() != b""
    fallback = tokenizers_by_kind["prepending"]
    assert fallback.decode([1 + 0x61, 1 + 0xFF, 1 + 0x62]) == "a\ufffdb"


def test_surrogates(tokenizers_by_kind: dict[str, HFTokenizer]) -> None:
    tokenizer = tokenizers_by_kind["byte level"]
    assert tokenizer.decode(tokenizer.encode("\ud83d\ude00")) == "😀"
    assert tokenizer.decode(tokenizer.encode("a\ud83d")) == "a\ufffd"


def test_named_tokens_and_info(tokenizer: HFTokenizer) -> None:
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert tokenizer.bos_token_id == tokenizer.special_tokens["<s>"]
    assert tokenizer.special_ids == frozenset(tokenizer.special_tokens.values())
    assert tokenizer.vocab_size > max(tokenizer.special_ids)
    info = json.loads(json.dumps(tokenizer.info()))
    added = info["added_tokens_decoder"]
    special = {int(number) for number, entry in added.items() if entry["special"]}
    assert special == tokenizer.special_ids
    assert info["vocab_size"] == tokenizer.vocab_size


def test_other_added_tokens_are_matched_in_any_text(tokenizer: HFTokenizer) -> None:
    marked = RenderedPrompt(f"hi<tool>hi<{MARK}/s><tool>", MARK)
    ids = tokenizer.encode_rendered(marked)
    tool = with_specials(tokenizer, "<tool>")[-1]
    assert ids.count(tool) == 2


def test_long_texts_without_spaces(tokenizers_by_kind: dict[str, HFTokenizer]) -> None:
    """Time that grew with the square of the length would take hours here."""
    for text in ("a" * 300_000, " " * 300_000, "é" * 150_000, "ab1_" * 75_000):
        for kind in ("byte level", "prepending"):
            assert len(tokenizers_by_kind[kind].encode(text)) > 1000


# ---------------------------------------------------------------------------------- model folders

NAMES = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "tokenizer_class": "X"}


def folder(path: Path, config: dict[str, Any], vocabulary: str = "<>/shi") -> Path:
    from tokenizers import Tokenizer, models

    words = {letter: i for i, letter in enumerate([*vocabulary, "<s>", "</s>"])}
    backend = Tokenizer(models.BPE(vocab=words, merges=[]))
    backend.enable_truncation(2)
    backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_folder(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(folder(tmp_path, NAMES))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (6, 7)
    assert tokenizer.special_ids == {6, 7}, (
        "named tokens are special though tokenizer.json is silent"
    )
    assert tokenizer.encode("hihi<s>") == [4, 5, 4, 5, 6], "not truncated, nothing added"
    assert tokenizer.info()["tokenizer_class"] == "X"


def test_special_tokens_map_and_other_configuration(tmp_path: Path) -> None:
    path = folder(tmp_path, {})
    (path / "special_tokens_map.json").write_text(json.dumps(NAMES), encoding="utf-8")
    assert load_tokenizer(path).eos_token == "</s>"
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"eos_token": "<s>"}), encoding="utf-8")
    assert load_tokenizer(path, other).eos_token == "<s>"


def test_added_tokens_of_the_configuration(tmp_path: Path) -> None:
    entry = {"content": "<x>", "special": True}
    path = folder(tmp_path, {"added_tokens_decoder": {"8": entry}})
    assert load_tokenizer(path).special_tokens == {"<x>": 8}
    path = folder(tmp_path, {"added_tokens_decoder": {"99": entry}})
    with pytest.raises(ModelFileError, match="99"):
        load_tokenizer(path)


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}"])
def test_broken_folder(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


HOSTILE: dict[str, dict[str, Any]] = {
    "an id beyond all use": {"type": "WordLevel", "vocab": {"a": 1 << 31}, "unk_token": "a"},
    "no unknown token": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "b"},
    "unigram without an unknown token": {"type": "Unigram", "vocab": [["a", 0.0]]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_models(case: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    parts = json.loads(Tokenizer(models.BPE()).to_str()) | {"model": HOSTILE[case]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")
    with pytest.raises(ModelFileError, match="vocabulary"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("charsmap", ["", "AAAA", "AAQAAAAA", 1.5, "é"])
def test_hostile_normalizers(charsmap: Any, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    normalizer = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    parts = json.loads(Tokenizer(models.BPE()).to_str()) | {"normalizer": normalizer}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")
    with pytest.raises(ModelFileError):
        load_tokenizer(tmp_path)


def test_control_tokens_that_are_pieces_of_the_model(tmp_path: Path) -> None:
    """Models that take any piece they find in the text must not find these."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "</s>": 1, "hi": 2}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["</s>"])
    backend.add_tokens(["<tool>"])
    tokenizer = HFTokenizer(backend)
    assert tokenizer.encode("hi </s>") == [2, 1]
    marked = RenderedPrompt(f"hi <{MARK}/s> <tool> hi", MARK)
    assert tokenizer.encode_rendered(marked) == [2, 0, 3, 2]


def test_merges_that_would_end_the_process(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    parts = json.loads(Tokenizer(models.BPE()).to_str())
    parts["model"] |= {"continuing_subword_prefix": "##"}
    for merges, vocabulary in ((["a ##b"], {}), ([["a", "b"]], {"b": 3}), (["a #"], {"#": 3})):
        parts["model"] |= {"merges": merges, "vocab": {"a": 0, "##b": 1, "ab": 2} | vocabulary}
        (tmp_path / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")
        if not vocabulary:
            load_tokenizer(tmp_path)
            continue
        with pytest.raises(ModelFileError, match="prefix"):
            load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "spelling",
    ['"continuing_subword_prefix": "####"', '"continuing\\u005fsubword_prefix": "####"'],
    ids=["plain", "escaped"],
)
def test_a_prefix_that_would_cut_a_character(tmp_path: Path, spelling: str) -> None:
    """The library would make a string that is no UTF-8 of it and end the process."""
    text = json.dumps(
        folder_files(None)["tokenizer.json"]
        | {
            "model": {
                "type": "BPE",
                "vocab": {"aaaa": 0, "€€€€": 1},
                "merges": [["aaaa", "€€€€"]],
            }
        }
    )
    (tmp_path / "tokenizer.json").write_text(text.replace('"vocab"', spelling + ', "vocab"'))
    with pytest.raises(ModelFileError, match="prefix"):
        load_tokenizer(tmp_path)


def test_a_hidden_prefix_behind_a_plain_one(tmp_path: Path) -> None:
    text = json.dumps(folder_files(None)["tokenizer.json"])
    hidden = text.replace(
        '"continuing_subword_prefix": null',
        '"continuing_subword_prefix": null, "continuing\\u005fsubword_prefix": "####"',
    )
    assert hidden != text
    (tmp_path / "tokenizer.json").write_text(hidden)
    with pytest.raises(ModelFileError, match="prefix"):
        load_tokenizer(tmp_path)


def write_parts(path: Path, **parts: Any) -> Path:
    """A valid folder but for these parts of tokenizer.json."""
    content = folder_files(None)["tokenizer.json"] | parts
    (path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def test_padding_and_truncation_of_the_file_are_not_used(tmp_path: Path) -> None:
    padding = {
        "strategy": {"Fixed": 1_000_000_000},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "x",
    }
    truncation = {
        "direction": "Right",
        "max_length": 1,
        "strategy": "LongestFirst",
        "stride": 5,
    }
    tokenizer = load_tokenizer(write_parts(tmp_path, padding=padding, truncation=truncation))
    assert tokenizer.decode(tokenizer.encode("the thing")) == "the thing"


def split_at(expression: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Isolated",
        "invert": False,
    }


EXPLODING = (
    *("(a+)+b", "(a*)*c", r"(\s+)+x", r"a*a*a*a*a*a*b", "a+a+a+Z", "q+q+q+Z", "(q+)+w"),
    *("(?:qx)+(?:qx)+(?:qx)+Z", "(?:q[rs])+(?:q[rs])+(?:q[rs])+Z", "[k-m]+[k-m]+[k-m]+Z"),
    *(r"\p{Thai}+\p{Thai}+\p{Thai}+Z", r"\x{1F600}+\x{1F600}+\x{1F600}+Z", r"\++\++\++Z"),
    *(r"(?:\d\s)+(?:\d\s)+(?:\d\s)+Z", "[^q]+[^q]+[^q]+Z", r"\p{Lt}+\p{Lt}+\p{Lt}+Z"),
)


@pytest.mark.parametrize("expression", EXPLODING)
def test_expressions_that_explode(tmp_path: Path, expression: str) -> None:
    with pytest.raises(ModelFileError, match="vocabulary"):
        load_tokenizer(write_parts(tmp_path, pre_tokenizer=split_at(expression)))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [("a" * 9000, "more than 8192 characters"), (f"[{''.join(map(chr, range(999)))}]", "")],
)
def test_expressions_that_cannot_be_tried(tmp_path: Path, expression: str, reason: str) -> None:
    with pytest.raises(ModelFileError, match="regular expressions.*" + reason):
        load_tokenizer(write_parts(tmp_path, pre_tokenizer=split_at(re.escape(expression))))


def test_a_text_that_the_library_fails_on(tmp_path: Path) -> None:
    """An expression that explodes only on what the trial at loading does not have."""
    tokenizer = load_tokenizer(write_parts(tmp_path, pre_tokenizer=split_at("([m-p&&[^mp]]+)+w")))
    assert tokenizer.encode("the thing")
    for text in ("n" * 60 + " w", "<|im_start|>" + "n" * 60 + " w"):
        with pytest.raises(InvalidRequest, match="cannot encode this text"):
            tokenizer.encode(text)
        with pytest.raises(InvalidRequest, match="cannot encode this text"):
            tokenizer.encode_rendered(RenderedPrompt(text.replace("im", f"i{MARK}m"), MARK))


def test_large_tokenizer_json(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json.*64 MiB"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["added_tokens_decoder", "additional_special_tokens"])
def test_many_added_tokens(tmp_path: Path, name: str) -> None:
    """They are added at once, and not without end."""
    path = write_parts(tmp_path)
    for count, is_usable in ((20_000, True), (70_000, False)):
        texts = [f"<{i}>" for i in range(count)]
        entries: Any = texts
        if name == "added_tokens_decoder":
            entries = {str(VOCAB_SIZE + i): {"content": text} for i, text in enumerate(texts)}
        (path / "tokenizer_config.json").write_text(json.dumps({name: entries}))
        if is_usable:
            load_tokenizer(path)
            continue
        with pytest.raises(ModelFileError, match="added tokens"):
            load_tokenizer(path)


ODD_CONFIGS: dict[str, dict[str, Any]] = {
    "kinds": {"bos_token": 3, "eos_token": [], "add_bos_token": "yes", "add_eos_token": {}},
    "lists": {"additional_special_tokens": [None, 1, {}, {"content": 2}, ""], "unk_token": {}},
    "decoder": {"added_tokens_decoder": {"x": None, "": {"content": None}, "9": "text"}},
    "decoder is a list": {"added_tokens_decoder": ["a"]},
    "unknown end": {"bos_token": "nowhere", "add_bos_token": True},
    "template is a number": {"chat_template": 3, "model_max_length": 10**40},
    "flags": {"added_tokens_decoder": {"3": {"content": "$", "special": "x", "lstrip": 3}}},
}


@pytest.mark.parametrize("case", ODD_CONFIGS)
def test_odd_configurations(tmp_path: Path, case: str) -> None:
    """Used as far as they make sense, or refused by name."""
    refusal = "tokenizer_config.json"
    path = write_parts(tmp_path)
    (path / "tokenizer_config.json").write_text(json.dumps(ODD_CONFIGS[case]))
    try:
        tokenizer = load_tokenizer(path)
        assert tokenizer.decode(tokenizer.encode("the thing")) == "the thing"
        json.dumps(tokenizer.info())
    except ModelFileError as error:
        refusal = str(error)
    assert "tokenizer_config.json" in refusal
