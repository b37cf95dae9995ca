"""What the rest of Octavo asks of a tokenizer, and the one built on the `tokenizers` library."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from octavo.errors import InvalidRequest, ModelFileError
from octavo.text.library import library_faults
from octavo.text.literal import Control, LiteralEncoder
from octavo.text.probe import check_merges, probe
from octavo.text.spelling import Spelling
from octavo.weights.mapped import MappedFile, read_json_object, shown

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend


MAX_TOKENIZER_BYTES = 64 << 20  # of tokenizer.json; that of 262,144 tokens has 33 MB
MAX_ADDED = 1 << 16  # added tokens; Gemma has 6,415
MAX_IDS = 1 << 22  # vocabularies of today have a quarter of a million tokens


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A chat as the template wrote it.

    `marked` may hold break marks: the character `mark` stands inside every control token that came
    from a user's string, so that only the template's own control tokens match. Empty `mark`: none.
    """

    marked: str
    mark: str = ""

    @property
    def text(self) -> str:
        """The prompt without marks."""
        return self.marked.replace(self.mark, "") if self.mark else self.marked


class Tokenizer(Protocol):
    """Text to ids and ids to bytes. Thread-safe; `encode` may release the GIL."""

    vocab_size: int  # ids lie in 0 <= id < vocab_size
    bos_token: str | None
    eos_token: str | None
    bos_token_id: int | None
    eos_token_id: int | None
    special_ids: frozenset[int]  # control tokens: added and marked special
    special_tokens: Mapping[str, int]  # their texts
    max_token_bytes: int  # the longest token

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Parse in full: control tokens in the text become their ids, as in transformers."""
        ...

    def encode_rendered(
        self, prompt: RenderedPrompt, add_special_tokens: bool = False
    ) -> list[int]:
        """As `encode`, but control tokens that carry a break mark are ordinary text."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that this token adds to a text (UTF-8, perhaps a part of a character)."""
        ...

    def token_str(self, token_id: int) -> str:
        """The token as the vocabulary spells it (`Ġhello`), for /tokenize."""
        ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The bytes of all tokens, as text; bytes that are no UTF-8 become U+FFFD."""
        ...

    def info(self) -> dict[str, Any]:
        """What /tokenizer_info answers, JSON values only."""
        ...


class HFTokenizer:
    """A tokenizer of the `tokenizers` library. Satisfies `Tokenizer`."""

    def __init__(
        self,
        backend: "Backend",
        config: Mapping[str, Any] | None = None,
        tokens: Sequence[str] = (),
    ) -> None:
        """`config` is as in tokenizer_config.json: it names the special tokens; `info` shows it.

        `tokens` are the vocabulary's spellings by id, if the model file lists them; two ids may
        have the same.
        """
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._config = dict(config or {})
        self._tokens = list(tokens) or _spellings(backend)
        self.vocab_size = len(self._tokens)
        self._added = dict(sorted(backend.get_added_tokens_decoder().items()))
        self.special_ids = frozenset(i for i, token in self._added.items() if token.special)
        self.special_tokens: Mapping[str, int] = {
            t.content: i for i, t in self._added.items() if t.special
        }
        self.bos_token, self.bos_token_id = self._named("bos_token")
        self.eos_token, self.eos_token_id = self._named("eos_token")
        decoder = backend.decoder
        self._spelling = Spelling(None if decoder is None else json.loads(decoder.__getstate__()))
        self._bytes: list[bytes | None] = [None] * self.vocab_size
        added = (len(token.content.encode()) for token in self._added.values())
        self.max_token_bytes = max(self._spelling.longest(self._tokens), max(added, default=0))
        self._literal = LiteralEncoder(backend, self.special_tokens)

    @property
    def kind(self) -> str:
        """`byte-level BPE` say: the library's name of the model, and how it spells all else."""
        decoder = self._backend.decoder
        state = "" if decoder is None else decoder.__getstate__().decode()
        name = type(self._backend.model).__name__
        if '"ByteLevel"' in state:
            return f"byte-level {name}"
        return f"{name} with byte fallback" if '"ByteFallback"' in state else name

    def _named(self, name: str) -> tuple[str | None, int | None]:
        token = token_content(self._config.get(name))
        number = None if token is None else self._backend.token_to_id(token)
        return (None, None) if number is None else (token, number)

    # --------------------------------------------------------------------------- text to ids

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        # Only batches are encoded with the GIL released.
        with _refusing():
            batch = self._backend.encode_batch_fast(
                [without_surrogates(text)], add_special_tokens=add_special_tokens
            )
        ids: list[int] = batch[0].ids
        return ids

    def encode_rendered(
        self, prompt: RenderedPrompt, add_special_tokens: bool = False
    ) -> list[int]:
        """As `encode`, but control tokens that carry a break mark are ordinary text.

        The library parses the text without its marks. Where it takes a control token across a mark,
        the stretch between the control tokens around it is encoded again, as literal text;
        everything else stays as the library has it.
        """
        marked = without_surrogates(prompt.marked)
        text, marks = _take_marks_out(marked, prompt.mark)
        if not marks:
            return self.encode(text, add_special_tokens)
        with _refusing():
            encoding = self._backend.encode_batch([text], add_special_tokens=False)[0]
        controls = self._controls(encoding)
        own: list[Control] = []
        forged: list[Control] = []
        for control in controls:
            carries = control.carries(marks, text, self._added[control.number].content)
            (forged if carries else own).append(control)
        if not forged:
            return self.encode(text) if add_special_tokens else list(encoding.ids)
        with _refusing():
            ids = self._join(text, marks, encoding.ids, own, [control.place for control in forged])
        return self._surrounded(ids, encoding) if add_special_tokens else ids

    def _controls(self, encoding: "Encoding") -> list[Control]:
        special = self.special_ids
        return [
            Control(i, number, *span)
            for i, number in enumerate(encoding.ids)
            if number in special and (span := encoding.token_to_chars(i)) is not None
        ]

    def _join(
        self,
        text: str,
        marks: frozenset[int],
        parsed: list[int],
        own: list[Control],
        forged: list[int],
    ) -> list[int]:
        """The ids `parsed`, but the stretches between `own` control tokens that hold an index of
        `forged` are encoded literally."""
        ids: list[int] = []
        last = Control(-1, -1, 0, 0)
        waiting = iter([*forged, len(parsed)])
        next_forged = next(waiting)
        for control in [*own, Control(len(parsed), -1, len(text), len(text))]:
            if next_forged < control.place:
                after = self._added.get(last.number)
                stretch = text[last.end : control.start]
                inner = frozenset(m - last.end for m in marks if last.end <= m <= control.start)
                ids += self._literal.encode(stretch, inner, after)
                while next_forged < control.place:
                    next_forged = next(waiting)
            else:
                ids += parsed[last.place + 1 : control.place]
            if control.number >= 0:
                ids.append(control.number)
            last = control
        return ids

    def _surrounded(self, ids: list[int], encoding: "Encoding") -> list[int]:
        """What the post-processor puts around `encoding`, put around these ids."""
        bare = encoding.ids
        full = self._backend.post_process(encoding, None, True).ids
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return [*full[:start], *ids, *full[start + len(bare) :]]
        return ids

    # --------------------------------------------------------------------------- ids to text

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes[token_id]
        if known is None:
            added = self._added.get(token_id)
            if added is None:
                known = self._spelling.bytes_of(self._tokens[token_id])
            elif added.special:
                known = added.content.encode("utf-8", "replace")
            else:
                known = self._spelling.added(added.content)
            self._bytes[token_id] = known
        return known

    def token_str(self, token_id: int) -> str:
        return self._tokens[token_id]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        skipped = self.special_ids if skip_special_tokens else frozenset()
        text = b"".join(self.token_bytes(i) for i in token_ids if i not in skipped).decode(
            "utf-8", "replace"
        )
        return text.removeprefix(" ") if self._spelling.strips_space else text

    def info(self) -> dict[str, Any]:
        return {
            **self._config,
            "tokenizer_class": self._config.get("tokenizer_class", "PreTrainedTokenizerFast"),
            "model_max_length": self._config.get("model_max_length"),
            "vocab_size": self.vocab_size,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": self.eos_token_id,
            "added_tokens_decoder": {
                str(number): {
                    "content": token.content,
                    "special": token.special,
                    "lstrip": token.lstrip,
                    "rstrip": token.rstrip,
                    "single_word": token.single_word,
                    "normalized": token.normalized,
                }
                for number, token in self._added.items()
            },
        }


def _refusing() -> AbstractContextManager[None]:
    """Around an encoding: a vocabulary of strangers may fail on one text and serve all others."""
    return library_faults(InvalidRequest, "the model's tokenizer cannot encode this text")


def _spellings(backend: "Backend") -> list[str]:
    """By id; empty where an id has no token. Raises ModelFileError for ids beyond all use."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    last = max(vocabulary.values(), default=-1)
    if last >= MAX_IDS:
        raise ModelFileError(f"the vocabulary has the id {last}; ids up to {MAX_IDS - 1} are read")
    tokens = [""] * (last + 1)
    for token, number in vocabulary.items():
        tokens[number] = token
    return tokens


def _take_marks_out(marked: str, mark: str) -> tuple[str, frozenset[int]]:
    """The text, and the places in it where marks stood (before that character)."""
    if not mark or mark not in marked:
        return marked, frozenset()
    pieces = marked.split(mark)
    places, length = [], 0
    for piece in pieces[:-1]:
        length += len(piece)
        places.append(length)
    return "".join(pieces), frozenset(places)


def without_surrogates(text: str) -> str:
    """Pairs of surrogates joined to their character, lone ones as U+FFFD: neither has UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def token_content(entry: Any) -> str | None:
    """The text of a special token's entry in a configuration: a string or an object."""
    if isinstance(entry, dict):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else None


# -------------------------------------------------------------------------- from a model's folder

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
NAMED_TOKENS = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    *("additional_special_tokens", "extra_special_tokens"),
)


def load_tokenizer(folder: Path, tokenizer_config: Path | None = None) -> HFTokenizer:
    """The tokenizer of a model folder: from `tokenizer.json`, set up as transformers does, else
    from `tekken.json` or tiktoken's ranks. tokenizer_config.json (or the file given instead) and
    special_tokens_map.json name the special tokens. Raises ModelFileError naming the file at fault.
    """
    given = tokenizer_config or folder / "tokenizer_config.json"
    config = read_json_object(given) if tokenizer_config or given.is_file() else {}
    special_map = folder / "special_tokens_map.json"
    named = read_json_object(special_map) if special_map.is_file() else {}
    config = {**named, **{key: value for key, value in config.items() if value is not None}}
    backend, config = _read_backend(folder, config)
    _add_tokens(backend, config)
    set_ends(backend, config)
    probe(backend)
    return HFTokenizer(backend, config)


def _read_backend(folder: Path, config: dict[str, Any]) -> tuple["Backend", dict[str, Any]]:
    """And the configuration, with what a format implies."""
    from octavo.text.rank_files import TEKKEN_CONFIG, find_tiktoken, read_tekken, read_tiktoken

    if (folder / "tokenizer.json").is_file():
        return _read_tokenizer_json(folder / "tokenizer.json"), config
    if (folder / "tekken.json").is_file():
        return read_tekken(folder / "tekken.json"), TEKKEN_CONFIG | config
    ranks = find_tiktoken(folder)
    if ranks is not None:
        return read_tiktoken(ranks, config), config
    raise ModelFileError(
        "the model folder has no tokenizer.json, tekken.json or tiktoken file; save the model's "
        "fast tokenizer there"
    )


def _read_tokenizer_json(path: Path) -> "Backend":
    from tokenizers import Tokenizer as Backend

    file = MappedFile(path)
    try:
        if file.size > MAX_TOKENIZER_BYTES:
            raise file.broken(f"is larger than {MAX_TOKENIZER_BYTES >> 20} MiB")
        data = bytes(file.data)
    finally:
        file.close()
    check_merges(data)
    with library_faults(ModelFileError, "tokenizer.json cannot be read"):
        backend = Backend.from_buffer(data)
    # Before anything is encoded: a file may ask for padding to a thousand million tokens.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _add_tokens(backend: "Backend", config: Mapping[str, Any]) -> None:
    """Tokens that only the configuration tells: further added ones, and which ones are special."""
    from tokenizers import AddedToken

    entries = config.get("added_tokens_decoder")
    wanted: dict[str, tuple[str, AddedToken]] = {}
    for number, entry in entries.items() if isinstance(entries, dict) else ():
        content = token_content(entry)
        if content and backend.token_to_id(content) is None:
            flags = {name: entry.get(name) is True for name in FLAGS} if entry != content else {}
            wanted.setdefault(content, (number, AddedToken(content, **flags)))
    names = dict.fromkeys(_special_names(config))
    if len(wanted) + len(names) + len(backend.get_added_tokens_decoder()) > MAX_ADDED:
        raise ModelFileError(f"the tokenizer has more than {MAX_ADDED} added tokens")
    # All at once: the library looks through all of them after each call.
    backend.add_tokens([token for _, token in wanted.values()])
    for content, (number, _) in wanted.items():
        if str(backend.token_to_id(content)) != number:
            raise ModelFileError(
                f"tokenizer_config.json: added token {shown(content)} has id {shown(number)}, but "
                f"tokenizer.json leaves it {backend.token_to_id(content)}"
            )
    known = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
    special = [c for c in names if c not in known and backend.token_to_id(c) is not None]
    backend.add_special_tokens([AddedToken(c, special=True, normalized=False) for c in special])


def _special_names(config: Mapping[str, Any]) -> list[str]:
    entries: list[Any] = []
    for name in NAMED_TOKENS:
        entry = config.get(name)
        if isinstance(entry, list):
            entries += entry
        elif name == "extra_special_tokens" and isinstance(entry, dict):
            entries += entry.values()
        else:
            entries.append(entry)
    return [content for content in map(token_content, entries) if content]


def set_ends(backend: "Backend", config: Mapping[str, Any]) -> None:
    """Put BOS and EOS around texts, as `add_bos_token` and `add_eos_token` say, if they do."""
    from tokenizers.processors import TemplateProcessing

    if config.get("add_bos_token") is None and config.get("add_eos_token") is None:
        return
    ends = [
        token_content(config.get(name)) if config.get(f"add_{name}") else None
        for name in ("bos_token", "eos_token")
    ]
    bos, eos = (
        token if token is not None and backend.token_to_id(token) is not None else None
        for token in ends
    )
    backend.post_processor = TemplateProcessing(
        single=[*([bos] if bos else []), "$A", *([eos] if eos else [])],
        special_tokens=[(token, backend.token_to_id(token)) for token in (bos, eos) if token],
    )
