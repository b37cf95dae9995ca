"""Builds a tokenizer from the metadata of a GGUF file (`tokenizer.ggml.*`), which is checked first.

Source: the GGUF specification's list of standardised keys.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelFileError, NotBuilt
from octavo.text.pre_tokenizers import PRE_TOKENIZERS
from octavo.text.spelling import BYTE_TOKEN, SPACE_MARK
from octavo.text.tokenizer import HFTokenizer, one_line, set_ends

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

PREFIX = "tokenizer.ggml."
KNOWN_KINDS = ("bert", "t5", "rwkv", "plamo2", "gemma4")  # in the format, not built here


class TokenType(IntEnum):
    """Values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def tokenizer_from_gguf(metadata: Mapping[str, Any], file_name: str = "") -> HFTokenizer:
    """The tokenizer that the metadata describes.

    Raises ModelFileError naming the file, if its name is given, and the key that is missing, of
    another kind or too short; NotBuilt for a known kind of vocabulary that is not built here.
    """
    try:
        return _build(metadata)
    except (ModelFileError, NotBuilt) as error:
        if not file_name:
            raise
        raise type(error)(f"{file_name}: {error}") from None


def _build(metadata: Mapping[str, Any]) -> HFTokenizer:
    kind = metadata.get(PREFIX + "model")
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind in KNOWN_KINDS:
        raise NotBuilt(
            f"{PREFIX}model is {kind!r}, which is not built yet; built: {', '.join(builders)}"
        )
    if not isinstance(kind, str) or kind not in builders:
        raise ModelFileError(f"{PREFIX}model is {kind!r}; known: {', '.join(builders)}")
    tokens = _strings(metadata, "tokens")
    if not tokens:
        raise ModelFileError(f"{PREFIX}tokens is empty")
    types = _token_types(metadata, len(tokens))
    config = _config(metadata, tokens, types)
    try:
        backend = builders[kind](metadata, tokens, types, config)
        _add_tokens(backend, tokens, types)
        set_ends(backend, config)
    except ModelFileError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise ModelFileError(
            f"{PREFIX}tokens and {PREFIX}merges do not make a vocabulary: {one_line(error)}"
        ) from None
    return HFTokenizer(backend, config, tokens)


# ----------------------------------------------------------------------------- reading the metadata


def _array(metadata: Mapping[str, Any], key: str, kinds: tuple[str, ...]) -> list[Any] | None:
    """The array under `key`, whose elements are of one of the GGUF `kinds`."""
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    kind = getattr(getattr(value, "kind", None), "name", None)
    if not isinstance(value, list) or (kind is not None and kind not in kinds):
        raise ModelFileError(
            f"{PREFIX}{key} must be an array of {' or '.join(kinds)}, not of {kind or 'one value'}"
        )
    return value


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    value = _array(metadata, key, ("STRING",))
    if value is None:
        raise ModelFileError(f"{PREFIX}{key} is missing")
    if not all(isinstance(item, str) for item in value):
        raise ModelFileError(f"{PREFIX}{key} must be an array of strings")
    return value


def _token_types(metadata: Mapping[str, Any], count: int) -> list[int]:
    types = _array(metadata, "token_type", ("I32", "U32"))
    if types is None:
        return [TokenType.NORMAL] * count
    if len(types) != count:
        raise ModelFileError(f"{PREFIX}token_type has {len(types)} entries for {count} tokens")
    return types


def _scores(metadata: Mapping[str, Any], count: int) -> list[float]:
    scores = _array(metadata, "scores", ("F32", "F64"))
    if scores is None:
        raise ModelFileError(f"{PREFIX}scores is missing")
    if len(scores) != count:
        raise ModelFileError(f"{PREFIX}scores has {len(scores)} entries for {count} tokens")
    return scores


def _config(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> dict[str, Any]:
    """The same facts as tokenizer_config.json would hold."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = metadata.get(f"{PREFIX}{key}_token_id")
        if number is None:
            continue
        if type(number) is not int or not 0 <= number < len(tokens):
            raise ModelFileError(
                f"{PREFIX}{key}_token_id is {number!r}, but there are {len(tokens)} tokens"
            )
        config[f"{name}_token"] = tokens[number]
    for end in ("bos", "eos"):
        value = metadata.get(f"{PREFIX}add_{end}_token")
        if value is not None and type(value) is not bool:
            raise ModelFileError(f"{PREFIX}add_{end}_token must be true or false")
        config[f"add_{end}_token"] = value
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    config["model_max_length"] = length if type(length) is int else None
    scores = _array(metadata, "scores", ("F32", "F64"))
    if scores is not None and len(scores) != len(tokens):
        raise ModelFileError(f"{PREFIX}scores has {len(scores)} entries for {len(tokens)} tokens")
    return config


def _add_tokens(backend: "Backend", tokens: Sequence[str], types: Sequence[int]) -> None:
    """Control tokens are special; user-defined ones are only never cut."""
    from tokenizers import AddedToken

    def added(wanted: TokenType, special: bool) -> list[AddedToken]:
        number = int(wanted)  # an enum's member is slow to compare, and all tokens are
        return [
            AddedToken(token, special=special, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == number and token
        ]

    backend.add_special_tokens(added(TokenType.CONTROL, special=True))
    backend.add_tokens(added(TokenType.USER_DEFINED, special=False))


# ------------------------------------------------------------------------------------ the two kinds


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    """Of tokens that are spelled the same the first counts."""
    return dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))


def _byte_level(
    metadata: Mapping[str, Any], tokens: list[str], types: list[int], config: dict[str, Any]
) -> "Backend":
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    name = metadata.get(PREFIX + "pre", "default")
    cut = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if cut is None:
        raise ModelFileError(
            f"{PREFIX}pre is {name!r}, which is not known; known: {', '.join(PRE_TOKENIZERS)}"
        )
    merges = []
    for merge in _strings(metadata, "merges"):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            raise ModelFileError(f"{PREFIX}merges holds {merge!r}, which is not two parts")
        merges.append((left, right))
    backend = Backend(
        models.BPE(vocab=_numbered(tokens), merges=merges, ignore_merges=cut.ignore_merges)
    )
    backend.pre_tokenizer = cut.build()
    backend.decoder = decoders.ByteLevel()
    if config["add_bos_token"] is None:
        config["add_bos_token"] = cut.add_bos
    return backend


def _sentencepiece(
    metadata: Mapping[str, Any], tokens: list[str], types: list[int], config: dict[str, Any]
) -> "Backend":
    """Pieces are merged in the order of their scores, as SentencePiece does; what has no piece
    becomes bytes."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    scores = _scores(metadata, len(tokens))
    if str(metadata.get("general.architecture", "")).startswith("gemma"):
        # Gemma's scores do not follow its merges, the order of its tokens does; and runs of spaces
        # are written as such in files.
        scores = [-float(number) for number in range(len(tokens))]
        tokens[:] = [t.replace(" ", SPACE_MARK) if t.isspace() else t for t in tokens]
    numbers = _numbered(tokens)
    unknown = config.get("unk_token")
    backend = Backend(
        models.BPE(
            vocab=numbers,
            merges=_merges(tokens, types, scores, numbers),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=any(BYTE_TOKEN.fullmatch(token) for token in tokens[:1024]),
        )
    )
    spaces = normalizers.Replace(" ", SPACE_MARK)
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get(PREFIX + "add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = spaces
    backend.decoder = decoders.Sequence(steps)
    if config["add_bos_token"] is None:
        config["add_bos_token"] = True
    return backend


def _merges(
    tokens: Sequence[str],
    types: Sequence[int],
    scores: Sequence[float],
    numbers: Mapping[str, int],
) -> list[tuple[str, str]]:
    """Every way to put a piece together from two others, the piece with the best score first."""
    mergeable = {TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED}
    known = {token for token, kind in zip(tokens, types, strict=True) if kind in mergeable}
    found = []
    for number, token in enumerate(tokens):
        if token not in known or numbers[token] != number:
            continue
        pairs = [
            (token[:i], token[i:])
            for i in range(1, len(token))
            if token[:i] in known and token[i:] in known
        ]
        pairs.sort(key=lambda pair: (numbers[pair[0]], numbers[pair[1]]))
        found += [(-scores[number], number, pair) for pair in pairs]
    found.sort(key=lambda entry: entry[:2])
    return [pair for _, _, pair in found]
