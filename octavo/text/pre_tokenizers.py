"""How byte-level vocabularies cut text before merging, by the names that GGUF files use.

Sources: the published tokenizers of the models named, and llama.cpp's list of names. Where that
list only approximates a model's own expression, the model's own stands here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer


@dataclass(frozen=True, slots=True)
class Cut:
    """Steps that run one after the other: "digits" cuts off each digit, all other steps are regular
    expressions whose matches stand alone.

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
        for step in self.steps:
            if step == "digits":
                parts.append(pre_tokenizers.Digits(individual_digits=True))
            else:
                parts.append(pre_tokenizers.Split(Regex(step), behavior="isolated"))
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(parts)


# ------------------------------------------------------------------------------------- expressions
# A user's text meets these: none may take time that grows with the square of its length. Numbers
# that are grouped from their end are therefore looked through once, from their first digit.

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN2 = rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN35 = (
    rf"{_ENDINGS}|{_BEFORE}[\p{{L}}\p{{M}}]+|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_MINICPM5 = rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}+|{_SIGNS}|{_SPACES}"
_UFAKZEKA = rf"{_BEFORE}\p{{L}}+|\p{{N}}|{_SIGNS}|{_SPACES}"
_SEED_CODER = rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_BAILING = rf"'(?i:[sdmt]|ll|ve|re)|{_BEFORE}\p{{L}}+|\p{{N}}|{_SIGNS}|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE = (
    rf"{_ENDINGS}|{_BEFORE}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_JAIS2 = (
    rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|"
    r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|"
    r"\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
)


def _cased(
    numbers: str, endings: str = f"{_ENDINGS}?", marks: str = r"\p{M}", breaks: str = r"[\r\n/]*"
) -> str:
    """Words end before an upper-case letter that follows a lower-case one."""
    upper, lower = (
        rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}{marks}]",
        rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}{marks}]",
    )
    return (
        rf"{_BEFORE}{upper}*{lower}+{endings}|{_BEFORE}{upper}+{lower}*{endings}|"
        rf"{numbers}| ?[^\s\p{{L}}\p{{N}}]+{breaks}|{_SPACES}"
    )


_TEKKEN = _cased(r"\p{N}", endings="")
_GPT4O = _cased(r"\p{N}{1,3}")
_KIMI = r"\p{Han}+|" + _cased(r"\p{N}{1,3}", marks=r"\p{M}&&[^\p{Han}]", breaks=r"[\r\n]*")
_ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK3 = (
    rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+|"
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_SPARK = (
    rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+|"
    r" ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
)
_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
_HAN_TO_HANGUL = "[一-龥ࠀ-一가-\ud7ff]+"
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_LINES = r"[^\n]+|\n+"
_FROM_END = r"(?<!\p{N})\p{N}{1,2}(?=(?>(?:\p{N}{3})*)(?!\p{N}))|\p{N}{3}"
_AYA_NUMBERS = r"(?<!\d)\d{1,3}(?=(?>(?:\d{3})*)\b)|\d{3}"
_TO_GROUPS = r"(?=(?>(?:\d{3})*)(?!\d))"  # what follows are whole groups, or no digit
_SUPERBPE_NUMBERS = (  # cut before each group only: what else is a number stays with its neighbour
    rf"(?:\A(?!(?>(?:\d{{3}})+)(?!\d))\d{{0,2}}{_TO_GROUPS}|\d{{3}})(?:\D+\d{{0,2}}{_TO_GROUPS})*"
)
_ASIAN = (
    "[一-鿿㐀-䶿豈-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-\uaa7f"
    "ꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+"
)
_YOUTU = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"
_CASED_OF_OLD_UNICODE = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_OF_OLD_UNICODE}]+",
    r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    r"(?<!\s)\s+$",
    _HAN_TO_HANGUL,
    "digits",
)
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"IMGIMG[A-I]{1,4}Z",
    r"[\t\n]|    |  ",
    "digits",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)

# ------------------------------------------------------------------------------------------- names

_gpt2 = Cut((_GPT2,))
_digits = Cut(("digits", _GPT2))
_llama3 = Cut((_LLAMA3,), ignore_merges=True, add_bos=True)
_qwen2 = Cut((_QWEN2,))
_gpt4o = Cut((_GPT4O,))
_deepseek3 = Cut((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))
_bailing = Cut((_BAILING,))
_bloom = Cut((_BLOOM,))
_aya = Cut((_AYA_NUMBERS, _GPT4O))

PRE_TOKENIZERS: Final[Mapping[str, Cut]] = {
    # A file without the key is cut like "default".
    "default": Cut((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "a.x-4.0"), _gpt2),
    **dict.fromkeys(("mellum", "modern-bert", "roberta-bpe", "exaone4", "trillion"), _gpt2),
    **dict.fromkeys(("granite-docling", "jina-es", "jina-de", "jina-v1-en"), _gpt2),
    **dict.fromkeys(("jina-v2-es", "jina-v2-de", "jina-v2-code"), _gpt2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _digits),
    **dict.fromkeys(("exaone", "minerva-7b", "mellum2"), _digits),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2"), _llama3),
    **dict.fromkeys(("pixtral", "midm-2.0", "jina-v5-nano"), _llama3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), Cut((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"), _qwen2),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "grok-2"), _qwen2),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"), _gpt4o),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _deepseek3),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _bailing),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _bloom),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _aya),
    "qwen35": Cut((_QWEN35,)),
    "tekken": Cut((_TEKKEN,), ignore_merges=True, add_bos=True),
    "falcon": Cut((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "granite-embed-multi-97m": Cut((_GPT4O,), ignore_merges=True),
    "kimi-k2": Cut((_KIMI,)),
    "deepseek-llm": Cut(_DEEPSEEK_LLM),
    "deepseek-coder": Cut((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_TO_HANGUL, "digits")),
    "spark2_5": Cut((r"\p{N}{1,3}", _CJK, _SPARK, r"\p{N}")),
    "afmoe": Cut((_FROM_END, _ASIAN, _DEEPSEEK3)),
    "superbpe": Cut((r"\p{N}+", _SUPERBPE_NUMBERS)),
    "youtu": Cut((_YOUTU, _cased(r"\p{N}")), ignore_merges=True),
    "jais-2": Cut((_JAIS2,)),
    "viking": Cut((_BLOOM, "digits")),
    "chameleon": Cut(_CHAMELEON, add_bos=True),
    "seed-coder": Cut((_SEED_CODER,)),
    "ufakzeka": Cut((_UFAKZEKA,)),
    "laguna": Cut((_LINES, _QWEN2)),
    "exaone-moe": Cut((_EXAONE_MOE,)),
    "minicpm5": Cut((r"\p{N}{1,3}", _MINICPM5), ignore_merges=True),
}
