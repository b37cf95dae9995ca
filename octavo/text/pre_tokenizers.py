"""How byte-level vocabularies cut text before merging, by the names that GGUF files use.

Sources: the published tokenizers of the models named, and llama.cpp's list of names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer


@dataclass(frozen=True, slots=True)
class Cut:
    """Steps that run one after the other: "digits" cuts off each digit, "gpt2" is the expression of
    GPT-2, all other steps are regular expressions whose matches stand alone.

    ignore_merges: a piece that is a token is taken whole. add_bos: what holds when the file does
    not say. Text is not normalised, as in llama.cpp.
    """

    steps: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> "PreTokenizer":
        """The library's form of the steps."""
        from tokenizers import Regex, pre_tokenizers

        parts: list[Any] = []
        by_regex = "gpt2" not in self.steps
        for step in self.steps:
            if step == "digits":
                parts.append(pre_tokenizers.Digits(individual_digits=True))
            elif step != "gpt2":
                parts.append(pre_tokenizers.Split(Regex(step), behavior="isolated"))
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not by_regex))
        return pre_tokenizers.Sequence(parts)


_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|"
    rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN2 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN35 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?|"
    rf"\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)

_gpt2 = Cut(("gpt2",))
_digits = Cut(("digits", "gpt2"))
_llama3 = Cut((_LLAMA3,), ignore_merges=True, add_bos=True)
_qwen2 = Cut((_QWEN2,))
_gpt4o = Cut((_GPT4O,))

# A file without the key is cut as GPT-2 does, and so is "default": as in transformers.
PRE_TOKENIZERS: Final[Mapping[str, Cut]] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "mpt", "olmo", "jais"), _gpt2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _digits),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2"), _llama3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), Cut((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "kormo"), _qwen2),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _gpt4o),
    "qwen35": Cut((_QWEN35,)),
    "tekken": Cut((_TEKKEN,), ignore_merges=True, add_bos=True),
    "falcon": Cut((r"[\p{P}$+<=>^~|`]+", "gpt2", r"[0-9][0-9][0-9]")),
    "deepseek-v3": Cut((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
}
