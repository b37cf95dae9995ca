"""The `tokenizers` library and its failures: its panics are no Exceptions."""

from collections.abc import Iterator
from contextlib import contextmanager

from octavo.errors import OctavoError


@contextmanager
def library_faults(fault: type[OctavoError], sentence: str) -> Iterator[None]:
    """What the library raises or panics with becomes `fault`: the sentence, a colon, the reason."""
    try:
        yield
    except OctavoError:
        raise
    except BaseException as error:
        # What else is no Exception comes from outside, like a signal that ends the process.
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        raise fault(f"{sentence}: {one_line(error)}") from None


def _is_panic(error: BaseException) -> bool:
    """The class cannot be imported: each library that is written in Rust makes its own."""
    kind = type(error)
    return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")


def one_line(error: BaseException) -> str:
    """An error of the library for people: files' contents in it may have any length and lines."""
    text = "".join(c if c.isprintable() else " " for c in " ".join(str(error).split()))
    return text if len(text) <= 200 else text[:200] + "..."
