"""Which tokens end an answer, beyond the one that a GGUF file names as its end of sequence.

Converters write the token that ends a turn of a chat as its own key, or not at all: then its usual
name tells. Source: llama.cpp's list of end-of-generation tokens.
"""

from collections.abc import Mapping
from typing import Any

from octavo.text.tokenizer import Tokenizer

_KEYS = ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_NAMES = frozenset(
    [
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<EOT>",
        "<|return|>",
        "<|call|>",
    ]
)


def further_ends(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> frozenset[int]:
    """Ids of control tokens that end an answer by the file's keys or by their name."""
    named = {number for text, number in tokenizer.special_tokens.items() if text in _NAMES}
    stored = {metadata.get(key) for key in _KEYS}
    return frozenset(named | {number for number in stored if type(number) is int})
