"""Vocabularies: tokenizer.json of every kind of model, damaged, and its configuration.

Every folder gives a tokenizer that encodes and decodes, or is refused by a ModelFileError.
"""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from octavo.errors import InvalidRequest, ModelFileError
from octavo.testing import tiny_tokenizer
from octavo.testing.fuzz import json_damage
from octavo.testing.fuzz.bounds import check_refusal
from octavo.testing.fuzz.choices import Choices
from octavo.text.tokenizer import HFTokenizer, RenderedPrompt, load_tokenizer

NAME = "vocabularies"
CPU_S = 3.0
GROWTH_BYTES = 128 << 20
MAX_MESSAGE = 500
MARK = "\ufdd0"
TEXTS = (
    *("Hello wörld 12 \n\n <|im_end|>x", "", "ab ab ab\t中文 \u0301", " " * 300),
    *(letters * 800 + " Z" for letters in ("a", "q", "qx", "l", "ก", "+", "1 ", "中")),
)
# Most explode on one of the texts, if they are not refused.
EXPRESSIONS = (
    *("(a+)+b", "q+q+q+Z", "(?:qx)+(?:qx)+(?:qx)+Z", "[k-m]+[k-m]+[k-m]+Z", r"\++\++\++Z"),
    *(r"\p{Thai}+\p{Thai}+\p{Thai}+Z", r"(?:\d\s)+(?:\d\s)+(?:\d\s)+Z", "[^q]+[^q]+[^q]+Z"),
    *(r"\x{4E2D}+\x{6587}?\x{4E2D}+\x{4E2D}+Z", r"(?i:q|x)+ ?\p{Lu}", r"\p{L}{1,3}(?=q+)|[l+]+"),
)

WORDS = ("[UNK]", "a", "b", "##b", "ab", "hello", "▁", "▁a", "<0x0A>", "e", "##e", " ")
NORMALIZERS: tuple[Any, ...] = (
    {"type": "NFC"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {"type": "ByteLevel"},
)
PRE_TOKENIZERS: tuple[Any, ...] = (
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
    {
        "type": "Split",
        "pattern": {"Regex": r"\s+(?!\S)|\s+"},
        "behavior": "Isolated",
        "invert": False,
    },
    *(
        {"type": "Split", "pattern": {"Regex": text}, "behavior": "Removed", "invert": True}
        for text in EXPRESSIONS
    ),
    {"type": "BertPreTokenizer"},
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "UnicodeScripts"},
    {"type": "FixedLength", "length": 5},
    {"type": "CharDelimiterSplit", "delimiter": "x"},
)
POST: tuple[Any, ...] = (
    None,
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
    {"type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 0]},
    {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "a", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"a": {"id": "a", "ids": [1], "tokens": ["a"]}},
    },
)
DECODERS: tuple[Any, ...] = (
    None,
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "BPEDecoder", "suffix": "</w>"},
    {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
)


@cache
def _models() -> tuple[Any, ...]:
    numbers = {word: number for number, word in enumerate(WORDS)}
    bpe = tiny_tokenizer.folder_files(None)["tokenizer.json"]["model"]
    return (
        bpe,
        {
            **bpe,
            "vocab": numbers,
            "merges": [["a", "b"]],
            "unk_token": "[UNK]",
            "byte_fallback": True,
            "fuse_unk": True,
            "continuing_subword_prefix": "##",
            "end_of_word_suffix": "",
        },
        {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": numbers,
        },
        {
            "type": "Unigram",
            "unk_id": 0,
            "vocab": [[word, -float(number)] for number, word in enumerate(WORDS)],
            "byte_fallback": True,
        },
        {"type": "WordLevel", "vocab": numbers, "unk_token": "[UNK]"},
    )


def files(data: bytes) -> dict[str, bytes]:
    """The files that these bytes decide."""
    choices = Choices(data)
    base = tiny_tokenizer.folder_files(tiny_tokenizer.CHATML)
    tokenizer = {
        **base["tokenizer.json"],
        "model": choices.of(_models()),
    }
    if choices.chance(2):
        tokenizer["normalizer"] = choices.of(NORMALIZERS)
    if choices.chance(2):
        tokenizer["pre_tokenizer"] = choices.of((None, *PRE_TOKENIZERS))
    if choices.chance(2):
        tokenizer["post_processor"] = choices.of(POST)
    if choices.chance(2):
        tokenizer["decoder"] = choices.of(DECODERS)
    config = base["tokenizer_config.json"]
    if choices.chance(3):
        config["added_tokens_decoder"] = {
            str(choices.number(300)): {"content": choices.of(WORDS), "special": True}
            for _ in range(choices.number(4))
        }
        config["add_bos_token"] = choices.of((True, False, None, 1, "x"))
    part = choices.of(("model", "added_tokens", "pre_tokenizer", "normalizer", "decoder", ""))
    if part and tokenizer[part]:
        tokenizer[part] = json_damage.damaged(choices, tokenizer[part])
    else:
        tokenizer = json_damage.damaged(choices, tokenizer)
    if choices.chance(3):
        config = json_damage.damaged(choices, config)
    return {
        "tokenizer.json": json_damage.text(choices, tokenizer),
        "tokenizer_config.json": json_damage.text(choices, config) if config else b"{}",
    }


def run(data: bytes) -> str:
    """Loads the tokenizer and uses it; "used" or the beginning of the refusal."""
    with tempfile.TemporaryDirectory() as name:
        for file, content in files(data).items():
            (Path(name) / file).write_bytes(content)
        try:
            tokenizer = load_tokenizer(Path(name))
        except ModelFileError as error:
            return check_refusal(error, MAX_MESSAGE, name)[:40]
    try:
        _use(tokenizer)
    except InvalidRequest as error:  # it may fail on one text
        return check_refusal(error, MAX_MESSAGE, name)[:60]
    return "used"


def _use(tokenizer: HFTokenizer) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert all(0 <= number < tokenizer.vocab_size for number in ids)
        tokenizer.decode(ids, skip_special_tokens=True)
        assert all(len(tokenizer.token_bytes(i)) <= tokenizer.max_token_bytes for i in ids)
    marked = MARK.join(TEXTS[0]) + "<|im_start|>"
    tokenizer.encode_rendered(RenderedPrompt(marked, MARK), add_special_tokens=True)
    json.dumps(tokenizer.info())
