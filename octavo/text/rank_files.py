"""Byte-level vocabularies that are ranked bytes: tiktoken's files and Mistral's `tekken.json`.

Sources: tiktoken's format (base64 of the bytes, a space, the rank, one a line) and mistral-common's
Tekken format. Of two neighbours the pair is merged whose bytes together have the lowest rank.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelFileError
from octavo.text.merges import check_lengths, merges_in_order
from octavo.text.pre_tokenizers import PRE_TOKENIZERS, Cut
from octavo.text.spelling import byte_letters
from octavo.weights.mapped import MappedFile, file_label, read_json_object, shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

TIKTOKEN_NAMES = ("tiktoken.model", "tokenizer.model")  # and any *.tiktoken
MAX_FILE_BYTES = 16 << 20  # Kimi's 163,584 ranks take 2.8 MiB
MAX_TOKENS = 1 << 20

# How the file's tokens cut text is not in it: by `tokenizer_class` of tokenizer_config.json, a name
# of PRE_TOKENIZERS. Llama 3's holds where there is no class, as in transformers.
TIKTOKEN_CLASSES: Final[Mapping[str, str]] = {
    "QWenTokenizer": "qwen2",
    "TikTokenTokenizer": "kimi-k2",
    "ChatGLM4Tokenizer": "glm4",
    **dict.fromkeys(("PreTrainedTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast"), "llama3"),
    **dict.fromkeys(("TokenizersBackend", "PreTrainedTokenizer"), "llama3"),
}
# Special tokens that a class has behind its ranks, though no file lists them.
CLASS_TOKENS: Final[Mapping[str, tuple[str, ...]]] = {
    "QWenTokenizer": (
        *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        *(f"<|extra_{i}|>" for i in range(205)),
    ),
}
# Special tokens of the first versions of tekken.json, which do not list them.
TEKKEN_TOKENS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)
TEKKEN_CONFIG = {
    "tokenizer_class": "MistralCommonTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "add_bos_token": True,
}


@dataclass(frozen=True, slots=True)
class Ranks:
    """tokens: bytes by rank. first: the id of rank 0. special, other: added tokens and their ids,
    control tokens and tokens that are only never cut. cut: how text is cut before merging.
    """

    tokens: Sequence[bytes]
    cut: Cut
    first: int = 0
    special: Mapping[str, int] = field(default_factory=dict)
    other: Mapping[str, int] = field(default_factory=dict)

    def build(self, label: str) -> "Backend":
        """Raises ModelFileError naming the file `label`."""
        from tokenizers import AddedToken, decoders, models
        from tokenizers import Tokenizer as Backend

        letters = byte_letters()
        spelled = ["".join([letters[byte] for byte in token]) for token in self.tokens]
        vocabulary = {token: self.first + rank for rank, token in enumerate(spelled)}
        if len(vocabulary) < len(spelled):
            raise ModelFileError(f"{label}: two ranks have the same bytes")
        missing = set(letters) - vocabulary.keys()
        if missing:
            raise ModelFileError(f"{label}: {len(missing)} of the 256 single bytes have no rank")
        check_lengths(spelled)
        merges = merges_in_order(spelled)
        added = {**self.special, **self.other}
        if added.keys() & vocabulary.keys():
            twice = min(added.keys() & vocabulary.keys())
            raise ModelFileError(f"{label}: {shown(twice)} is both a special token and a rank")
        backend = Backend(
            # As in tiktoken, a piece that has a rank is taken whole.
            models.BPE(vocab=vocabulary | added, merges=merges, ignore_merges=True)
        )
        backend.pre_tokenizer = self.cut.build()
        backend.decoder = decoders.ByteLevel()
        for contents, is_special in ((self.special, True), (self.other, False)):
            tokens = [AddedToken(c, special=is_special, normalized=False) for c in contents]
            (backend.add_special_tokens if is_special else backend.add_tokens)(tokens)
        return backend


# ---------------------------------------------------------------------------------------- tiktoken


def find_tiktoken(folder: Path) -> Path | None:
    """The file of ranks of a model folder, if it has one."""
    named = [folder / name for name in TIKTOKEN_NAMES]
    found = [*named, *sorted(folder.glob("*.tiktoken"))]
    return next((path for path in found if path.is_file()), None)


def read_tiktoken(path: Path, config: Mapping[str, Any]) -> "Backend":
    """`config`: of tokenizer_config.json, which names the special tokens and the class.

    Raises ModelFileError naming the file.
    """
    label = file_label(path)
    name = config.get("tokenizer_class") or "PreTrainedTokenizerFast"
    cut = TIKTOKEN_CLASSES.get(name) if isinstance(name, str) else None
    if cut is None:
        raise ModelFileError(
            f"{label}: how a {shown(str(name))} cuts text is not known; save the model's "
            "tokenizer.json beside it"
        )
    tokens = _read_ranks(path, label)
    special, other = _added(config, label)
    for number, content in enumerate(CLASS_TOKENS.get(name, ()), len(tokens)):
        if content not in special | other:
            special[content] = number
    inside = [c for c, number in (special | other).items() if number < len(tokens)]
    if inside:
        raise ModelFileError(
            f"tokenizer_config.json: the id of {shown(inside[0])} is a rank of {label}"
        )
    return Ranks(tokens, PRE_TOKENIZERS[cut], special=special, other=other).build(label)


def _read_ranks(path: Path, label: str) -> list[bytes]:
    file = MappedFile(path)
    try:
        if file.size > MAX_FILE_BYTES:
            raise ModelFileError(f"{label}: larger than {MAX_FILE_BYTES >> 20} MiB")
        lines = bytes(file.data[:]).split(b"\n")
    finally:
        file.close()
    tokens: dict[int, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        parts = line.split()
        try:
            token, rank = base64.b64decode(parts[0], validate=True), int(parts[1])
            usable = len(parts) == 2 and bool(token) and rank not in tokens
        except (ValueError, IndexError):
            usable = False
        if not usable:
            raise ModelFileError(
                f"{label}: line {number} is not base64, a space and a rank of its own; a "
                "SentencePiece model must be saved as tokenizer.json"
            )
        tokens[rank] = token
    if not tokens or sorted(tokens) != list(range(len(tokens))):
        raise ModelFileError(f"{label}: the ranks are not 0 to {len(tokens) - 1}, each once")
    return [tokens[rank] for rank in range(len(tokens))]


def _added(config: Mapping[str, Any], label: str) -> tuple[dict[str, int], dict[str, int]]:
    """Special and other tokens of `added_tokens_decoder`."""
    special: dict[str, int] = {}
    other: dict[str, int] = {}
    entries = config.get("added_tokens_decoder")
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        content = entry.get("content") if isinstance(entry, dict) else None
        number = int(key) if key.isascii() and key.isdigit() and len(key) < 8 else MAX_TOKENS
        if not isinstance(content, str) or not content or number >= MAX_TOKENS:
            raise ModelFileError(
                f"tokenizer_config.json: added token {shown(key)} has no text or no usable id"
            )
        (special if entry.get("special", False) else other)[content] = number
    numbers = [*special.values(), *other.values()]
    if len(set(numbers)) < len(numbers):
        raise ModelFileError("tokenizer_config.json: two added tokens have the same id")
    return special, other


# ------------------------------------------------------------------------------------------ tekken


def read_tekken(path: Path) -> "Backend":
    """Raises ModelFileError naming the file."""
    label = file_label(path)
    data = read_json_object(path)
    settings = data.get("config")
    if not isinstance(settings, dict):
        raise ModelFileError(f"{label}: has no object 'config'")
    size = _count(settings, "default_vocab_size", label)
    first = _count(settings, "default_num_special_tokens", label)
    pattern = settings.get("pattern")
    if not isinstance(pattern, str):
        raise ModelFileError(f"{label}: 'pattern' must be a regular expression")
    if first >= size:
        raise ModelFileError(f"{label}: {first} special tokens leave no room in {size} tokens")
    tokens = _tekken_ranks(data.get("vocab"), size - first, label)
    special, other = _tekken_special(data.get("special_tokens"), first, label)
    try:
        return Ranks(tokens, Cut((pattern,)), first, special, other).build(label)
    except ModelFileError:
        raise
    except Exception:  # the library raises plain Exception
        raise ModelFileError(f"{label}: 'pattern' is no regular expression") from None


def _count(settings: Mapping[str, Any], name: str, label: str) -> int:
    value = settings.get(name)
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise ModelFileError(f"{label}: {name!r} must be a number up to {MAX_TOKENS}")
    return value


def _tekken_ranks(entries: Any, count: int, label: str) -> list[bytes]:
    """The first `count` ones; files list more than the model uses."""
    if not isinstance(entries, list) or len(entries) < count:
        raise ModelFileError(f"{label}: 'vocab' must list at least {count} tokens")
    tokens = []
    for rank, entry in enumerate(entries[:count]):
        try:
            token = base64.b64decode(entry["token_bytes"], validate=True)
            usable = bool(token) and entry["rank"] == rank
        except (KeyError, TypeError, binascii.Error, ValueError):
            usable = False
        if not usable:
            raise ModelFileError(f"{label}: entry {rank} of 'vocab' has another rank or no bytes")
        tokens.append(token)
    return tokens


def _tekken_special(entries: Any, count: int, label: str) -> tuple[dict[str, int], dict[str, int]]:
    """Control and other tokens with ids below `count`; ids that are not listed get names."""
    if entries is None:
        entries = [
            {"rank": i, "token_str": text, "is_control": True}
            for i, text in enumerate(TEKKEN_TOKENS[:count])
        ]
    if not isinstance(entries, list):
        raise ModelFileError(f"{label}: 'special_tokens' must be a list")
    names: dict[int, tuple[str, bool]] = {}
    for entry in entries:
        rank = entry.get("rank") if isinstance(entry, dict) else None
        text = entry.get("token_str") if isinstance(entry, dict) else None
        if type(rank) is not int or not 0 <= rank < count or rank in names:
            raise ModelFileError(f"{label}: 'special_tokens' needs a rank below {count} each once")
        if not isinstance(text, str) or not text:
            raise ModelFileError(f"{label}: special token {rank} has no 'token_str'")
        names[rank] = (text, entry.get("is_control", True) is True)
    for rank in range(count):
        names.setdefault(rank, (f"<SPECIAL_{rank}>", True))
    if len({text for text, _ in names.values()}) < len(names):
        raise ModelFileError(f"{label}: two special tokens have the same text")
    ordered = sorted(names.items())
    return (
        {text: rank for rank, (text, is_control) in ordered if is_control},
        {text: rank for rank, (text, is_control) in ordered if not is_control},
    )
