"""What a chat template may spend, and how much each operator, filter and method would spend: asked
before it runs, because a single one can ask for more memory than there is.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

POINTER_BYTES: Final = 8
NUMBER_BITS: Final = 1 << 16
FORMAT_WIDTH: Final = 4096
PATTERN_OF_WIDTHS: Final = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")
CONTAINERS: Final[tuple[type, ...]] = (list, tuple, dict, set, frozenset, Namespace)
VIEWS: Final[tuple[type, ...]] = tuple(map(type, ({}.keys(), {}.values(), {}.items())))
CONTAINERS_AND_VIEWS: Final = (*CONTAINERS, *VIEWS)


@dataclass(frozen=True, slots=True)
class Limits:
    """steps: turns of loops, calls of macros, functions and filters, and items that are compared or
    printed. size_bytes: all the text and lists a rendering makes, besides 16 times its input.
    """

    steps: int = 2_000_000
    size_bytes: int = 256 << 20
    one_size_bytes: int = 64 << 20
    time_s: float = 10.0


class LimitExceeded(SecurityError):
    """A template asked for more than its limits."""


class Meter:
    """The account of one rendering."""

    def __init__(self, limits: Limits, input_bytes: int = 0) -> None:
        self._limits = limits
        self._steps_left = limits.steps
        self._bytes_left = limits.size_bytes + 16 * input_bytes
        self._one_size = limits.one_size_bytes + 2 * input_bytes
        self._deadline = time.monotonic() + limits.time_s

    def tick(self, size_bytes: int = 0) -> None:
        """One step is taken, which writes `size_bytes`."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise LimitExceeded(f"more than {self._limits.steps} loop turns and calls")
        if not self._steps_left & 63 and time.monotonic() > self._deadline:
            raise LimitExceeded(f"more than {self._limits.time_s:g} seconds")
        if size_bytes:
            self.grow(size_bytes)

    def grow(self, size_bytes: float) -> None:
        """A value of this size is about to be made."""
        if size_bytes > self._one_size:
            raise LimitExceeded(f"a value of more than {self._one_size >> 20} MiB")
        self._bytes_left -= int(size_bytes)
        if self._bytes_left < 0:
            raise LimitExceeded(f"more than {self._limits.size_bytes >> 20} MiB of text")

    def measure(self, value: object) -> int:
        """Bytes of text in `value` when it is written out: a container that holds another one twice
        is walked twice, as printing and comparing do."""
        if not isinstance(value, CONTAINERS_AND_VIEWS):
            return size_of(value)
        total = 0
        stack: list[Any] = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, CONTAINERS_AND_VIEWS):
                self.tick()
                inner = _contents(item)
                total += POINTER_BYTES * (1 + len(inner))
                stack += inner
                self._steps_left -= 3 + (len(inner) >> 3)  # what its walk takes, in turns of loops
            else:
                total += size_of(item)
            if total > self._one_size:
                self.grow(total)
        return total


def _contents(container: Any) -> list[Any]:
    if isinstance(container, Namespace):
        container = object.__getattribute__(container, "_Namespace__attrs")
    if isinstance(container, dict):
        return [*container.keys(), *container.values()]
    return list(container)


def size_of(value: object) -> int:
    """Bytes that a value takes itself, roughly; without what a container holds."""
    if isinstance(value, str):
        return len(value) if value.isascii() else 4 * len(value)
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return POINTER_BYTES * len(value)
    if isinstance(value, int):
        return value.bit_length() >> 3
    return POINTER_BYTES


# ------------------------------------------------------------------------------------- operators


def add(meter: Meter, left: Any, right: Any) -> None:
    if not isinstance(left, (int, float)):
        meter.grow(size_of(left) + size_of(right))


def multiply(meter: Meter, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _number(left.bit_length() + right.bit_length())
    elif isinstance(left, int):
        meter.grow(size_of(right) * max(left, 0))
    elif isinstance(right, int):
        meter.grow(size_of(left) * max(right, 0))


def power(meter: Meter, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and right > 0:
        _number(left.bit_length() * right)


def modulo(meter: Meter, left: Any, right: Any) -> None:
    """The remainder of numbers, or the formatting of a string."""
    if isinstance(left, (str, bytes)):
        text = left if isinstance(left, str) else left.decode("latin-1")
        for widths in PATTERN_OF_WIDTHS.findall(text):
            for width in filter(None, widths):
                _width(FORMAT_WIDTH + 1 if width == "*" else width)
        meter.grow(size_of(text) + text.count("%") * (meter.measure(right) + FORMAT_WIDTH // 64))


OPERATORS: Final[Mapping[str, Callable[[Meter, Any, Any], None]]] = {
    "+": add,
    "*": multiply,
    "**": power,
    "%": modulo,
}


def _number(bits: int) -> None:
    if bits > NUMBER_BITS:
        raise LimitExceeded(f"a number of more than {NUMBER_BITS} bits")


def _width(width: str | int) -> None:
    if len(str(width)) > 4 or int(width) > FORMAT_WIDTH:
        raise LimitExceeded(f"a format wider than {FORMAT_WIDTH}")


def format_spec(spec: str) -> None:
    """Check the part after the colon of a replacement field."""
    for width in re.findall(r"\d+", spec):
        _width(width)


def format_call(meter: Meter, template: str, args: tuple[Any, ...], named: Any) -> None:
    """Check a call of `str.format`, whose fields may all show the largest argument."""
    largest = meter.measure([*args, named])
    meter.grow(size_of(template) + template.count("{") * largest)


# ------------------------------------------------------------------- filters and methods of strings


def _to_width(meter: Meter, value: Any, width: Any = 80, *_: Any) -> None:
    meter.grow(_times(value, width))


def _times(value: Any, count: Any) -> float:
    """Bytes of `count` characters of a text like `value`."""
    wide = isinstance(value, str) and not value.isascii()
    return (4 if wide else 1) * float(count) if isinstance(count, (int, float)) else 0.0


def _replace(meter: Meter, value: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    if isinstance(value, (str, bytes)) and isinstance(old, type(value)):
        meter.grow(size_of(value) + value.count(old) * size_of(new))  # type: ignore[arg-type]
    else:
        meter.grow(meter.measure(value) * (1 + size_of(new)))


def _join(meter: Meter, items: Any, between: Any = "", *_: Any, **__: Any) -> None:
    count = len(items) if hasattr(items, "__len__") else 0
    meter.grow(meter.measure(items) + count * size_of(between))


def _method_join(meter: Meter, between: Any, items: Any = (), *_: Any) -> None:
    _join(meter, items, between)


def _expand_tabs(meter: Meter, value: Any, tabsize: Any = 8) -> None:
    meter.grow(size_of(value) + value.count("\t" if isinstance(value, str) else b"\t") * tabsize)


def _refuse(meter: Meter, value: Any, *_: Any, **__: Any) -> None:
    raise LimitExceeded("a method that chat templates may not call")


def _indent(meter: Meter, value: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    lines = 1 + str(value).count("\n") if isinstance(value, str) else 1
    each = size_of(width) if isinstance(width, str) else _times(value, width)
    meter.grow(meter.measure(value) + lines * each)


def _pieces(meter: Meter, value: Any, count: Any, *_: Any, **__: Any) -> None:
    meter.grow(POINTER_BYTES * float(count) if isinstance(count, (int, float)) else 0)


def _format(meter: Meter, value: Any, *args: Any, **named: Any) -> None:
    modulo(meter, value, named or args)


def _round(meter: Meter, value: Any, precision: Any = 0, *_: Any, **__: Any) -> None:
    if isinstance(precision, int) and abs(precision) > 300:
        raise LimitExceeded("a number rounded to more than 300 digits")


def _sum(meter: Meter, items: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, (int, float)):
        raise LimitExceeded("a sum of other things than numbers")


def _strip_tags(meter: Meter, value: Any) -> None:
    text = str(value) if isinstance(value, str) else ""
    meter.grow(meter.measure(value) + text.count("<!--") * len(text) / 64)


def _wrap(
    meter: Meter, value: Any, width: Any = 79, long: Any = True, by: Any = None, *_: Any
) -> None:
    lines = size_of(value) / max(1, width if isinstance(width, int) else 1)
    meter.grow(size_of(value) + lines * (1 + size_of(by)))


def _printed(meter: Meter, value: Any, *_: Any, **__: Any) -> None:
    """Filters that write a value out, each character as six at most."""
    meter.grow(6 * meter.measure(value))


def compared(meter: Meter, value: Any, *others: Any, **__: Any) -> None:
    for item in (value, *others):
        if isinstance(item, CONTAINERS_AND_VIEWS):
            meter.measure(item)


FILTERS: Final[Mapping[str, Callable[..., None]]] = {
    "center": _to_width,
    "indent": _indent,
    "replace": _replace,
    "join": _join,
    "format": _format,
    "batch": _pieces,
    "slice": _pieces,
    "round": _round,
    "sum": _sum,
    "striptags": _strip_tags,
    "wordwrap": _wrap,
    **dict.fromkeys(("string", "pprint", "urlencode", "urlize", "xmlattr", "trim"), _printed),
    **dict.fromkeys(("e", "escape", "forceescape", "truncate", "wordcount"), _printed),
    **dict.fromkeys(("title", "upper", "lower", "capitalize"), _printed),
    **dict.fromkeys(("sort", "dictsort", "unique", "groupby", "min", "max"), compared),
}

METHODS: Final[Mapping[str, Callable[..., None]]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _to_width),
    "replace": _replace,
    "join": _method_join,
    "expandtabs": _expand_tabs,
    **dict.fromkeys(("translate", "to_bytes", "maketrans"), _refuse),
}


def method_call(meter: Meter, owner: Any, name: str, args: tuple[Any, ...]) -> None:
    """Check a call of a method that is written in C."""
    for item in args:
        if isinstance(item, CONTAINERS_AND_VIEWS):
            meter.measure(item)
    if isinstance(owner, (str, bytes, int)):
        check = METHODS.get(name)
        if check is not None:
            check(meter, owner, *args)
    elif isinstance(owner, (list, tuple)) and name in ("index", "count"):
        meter.measure(owner)
