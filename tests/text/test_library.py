"""What the library fails with is a fault of a file; what only interrupts it is none."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from tokenizers.pre_tokenizers import FixedLength

from octavo.errors import InvalidRequest, ModelFileError
from octavo.text.library import library_faults


class Stop(BaseException):
    """What a handler of a signal raises."""


@contextmanager
def stopping_on(number: int) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    before = signal.signal(number, stop)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_signals_pass() -> None:
    with (
        stopping_on(signal.SIGUSR1),
        pytest.raises(Stop),
        library_faults(ModelFileError, "not read"),
    ):
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("kind", [Stop, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interruptions_pass(kind: type[BaseException]) -> None:
    with pytest.raises(kind), library_faults(ModelFileError, "not read"):
        raise kind


def test_our_errors_pass() -> None:
    with pytest.raises(InvalidRequest, match=r"^x$"), library_faults(ModelFileError, "not read"):
        raise InvalidRequest("x")


def test_errors_are_faults() -> None:
    fault = pytest.raises(ModelFileError, match=r"^not read: a b$")
    with fault, library_faults(ModelFileError, "not read"):
        raise ValueError("a\nb")


def test_panics_are_faults() -> None:
    panicking = FixedLength(0)
    fault = pytest.raises(ModelFileError, match=r"^not read: .*zero")
    with fault, library_faults(ModelFileError, "not read"):
        panicking.pre_tokenize_str("abc")
