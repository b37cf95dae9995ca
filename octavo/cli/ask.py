"""What `octavo chat` and `octavo complete` share: flags, where answers come from, how they go out.

Answers come from a model in this process (`local.py`) or from a running server (`remote.py`).
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from octavo.config import Config
from octavo.config.config import GROUPS
from octavo.config.fields import flags_of, integer, number, option, switch, text
from octavo.errors import UsageError

if TYPE_CHECKING:
    from octavo.serving.loading import Served

    Load = Callable[[Config], Served]

# The groups of `octavo serve` that say something about a model that answers one at a time.
MODEL_GROUPS = ("model", "cache")


@dataclass(frozen=True)
class AskOptions:
    """Answers"""

    url: str | None = option(
        None,
        "--url",
        doc="Ask the server at this address, as http://127.0.0.1:8000, in place of loading a "
        "model; MODEL is then the name that the server has for it.",
        convert=text,
        metavar="URL",
    )
    api_key: str | None = option(
        None,
        "--api-key",
        doc="The key that the server asks for.",
        convert=text,
        metavar="KEY",
        secret=True,
    )
    temperature: float | None = option(
        None,
        "--temperature",
        doc="How freely tokens are drawn; 0: always the likeliest.",
        convert=number(0, 2),
        metavar="X",
        default_text="the model's",
    )
    top_p: float | None = option(
        None,
        "--top-p",
        doc="Draw among the likeliest tokens of this share together.",
        convert=number(0, 1),
        metavar="SHARE",
        default_text="the model's",
    )
    top_k: int | None = option(
        None,
        "--top-k",
        doc="Draw among this many tokens. 0: all.",
        convert=integer(0),
        metavar="N",
        default_text="the model's",
    )
    min_p: float | None = option(
        None,
        "--min-p",
        doc="Leave out tokens below this share of the likeliest one's.",
        convert=number(0, 1),
        metavar="SHARE",
        default_text="the model's",
    )
    presence_penalty: float | None = option(
        None,
        "--presence-penalty",
        doc="Lowers tokens that the answer has already.",
        convert=number(-2, 2),
        metavar="X",
    )
    frequency_penalty: float | None = option(
        None,
        "--frequency-penalty",
        doc="Lowers tokens by how often the answer has them.",
        convert=number(-2, 2),
        metavar="X",
    )
    max_tokens: int | None = option(
        None,
        "--max-tokens",
        doc="Longest answer.",
        convert=integer(1),
        metavar="N",
        default_text="as many as fit",
    )
    seed: int | None = option(
        None,
        "--seed",
        doc="The same seed gives the same answer.",
        convert=integer(0),
        metavar="N",
        default_text="random",
    )
    stop: tuple[str, ...] = option(
        (),
        "--stop",
        doc="A text that ends the answer; may be given several times.",
        convert=text,
        metavar="TEXT",
        repeats=True,
    )
    verbose: bool = switch(False, "--verbose", "-v", doc="Log at level debug.")


NOT_SAMPLING = ("url", "api_key", "verbose")
SAMPLING = tuple(m.name for m, _ in flags_of(AskOptions) if m.name not in NOT_SAMPLING)


def sampling_of(options: AskOptions) -> dict[str, Any]:
    """The request fields that were given."""
    given = {name: getattr(options, name) for name in SAMPLING}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value not in (None, ())
    }


# ------------------------------------------------------------------------- where answers come from


class Piece(NamedTuple):
    """A piece of an answer; the last has a finish reason."""

    text: str
    finish_reason: str | None = None


class Answer(Protocol):
    """Pieces as they come. Raises OctavoError where the answer fails."""

    def __iter__(self) -> Iterator[Piece]: ...

    def close(self) -> None:
        """Want no more: the iteration ends. Also called from signal handlers, and after the end."""
        ...


class Source(AbstractContextManager["Source"], Protocol):
    """A model that answers; a `with` ends it. name: of the model. where: for people."""

    name: str
    where: str

    def chat(self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Answer:
        """Answer a conversation."""
        ...

    def complete(self, prompt: str, params: Mapping[str, Any]) -> Answer:
        """Go on with a text."""
        ...


def open_source(
    values: Mapping[str, Any], options: AskOptions, load: "Load | None" = None
) -> Source:
    """The source that the flags name. Raises UsageError for flags that exclude each other.

    values: of MODEL_GROUPS, those given. load: makes the served model, for doubles.
    """
    if options.verbose:
        from octavo.log import setup_logging

        setup_logging(verbose=True)
    if options.url is None:
        if options.api_key is not None:
            raise UsageError("--api-key is for a server: give --url too, or leave it out")
        from octavo.cli.local import LocalSource

        return LocalSource(values, load)
    for name in values:
        if name != "model":
            raise UsageError(f"{_flag(name)} is for a model that is loaded here, not for --url")
    from octavo.cli.remote import ServerSource

    return ServerSource(options.url, options.api_key, values.get("model"))


def _flag(name: str) -> str:
    members = (pair for group in MODEL_GROUPS for pair in flags_of(GROUPS[group]))
    return next(flag.names[0] for member, flag in members if member.name == name)


# ------------------------------------------------------------------------------- how they go out


class Told(NamedTuple):
    """An answer that was written. stopped: by an interrupt."""

    text: str
    finish_reason: str | None
    stopped: bool


def tell(answer: Answer, out: TextIO | None = None) -> Told:
    """Write an answer as it comes. SIGINT ends the answer, and raises nothing."""
    out = out or sys.stdout
    texts: list[str] = []
    finish_reason = None
    with _stopped_by_interrupt(answer.close) as stopped:
        try:
            for piece in answer:
                texts.append(piece.text)
                finish_reason = piece.finish_reason
                out.write(piece.text)
                out.flush()
        finally:
            answer.close()
    return Told("".join(texts), finish_reason, stopped.is_set())


@contextmanager
def _stopped_by_interrupt(stop: Callable[[], None]) -> Iterator[threading.Event]:
    """SIGINT calls `stop` and sets the event, so that no exception arises in odd places."""
    stopped = threading.Event()

    def on_interrupt(*_: object) -> None:
        stopped.set()
        stop()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
