"""How much each operator, filter and method of a chat template would spend: asked before it runs,
because a single one can ask for more time or memory than there is.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from octavo.text.meter import CONTAINERS_AND_VIEWS, LimitExceeded, Meter, size_of

NUMBER_BITS: Final = 1 << 16
FORMAT_WIDTH: Final = 4096
FORMAT_LENGTH: Final = 1 << 14  # of the left side of `%`
SPEC_LENGTH: Final = 256
PATTERN_OF_WIDTHS: Final = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")
SPACES: Final = tuple(c for c in map(chr, range(0x3001)) if c.isspace())
LINE_ENDS: Final = ("\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
ENCODINGS: Final = ("utf-8", "utf8", "ascii", "latin-1", "strict", "ignore", "replace")


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
        if len(left) > FORMAT_LENGTH:
            raise LimitExceeded(f"a format of more than {FORMAT_LENGTH} characters")
        text = left if isinstance(left, str) else left.decode("latin-1")
        fields = text.count("%")
        meter.work(fields * len(text) >> 8)  # "%(" without an end is looked for from each
        for widths in PATTERN_OF_WIDTHS.findall(text):
            for width in filter(None, widths):
                _width(FORMAT_WIDTH + 1 if width == "*" else width)
        meter.grow(size_of(text) + fields * (meter.measure(right) + FORMAT_WIDTH // 64))


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
    if len(spec) > SPEC_LENGTH:
        raise LimitExceeded(f"a format specification of more than {SPEC_LENGTH} characters")
    for width in re.findall(r"\d+", spec):
        _width(width)


def format_call(meter: Meter, template: str, args: tuple[Any, ...], named: Any) -> None:
    """Check a call of `str.format`, whose fields may all show the largest argument."""
    meter.work(len(template) >> 2)
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
    if isinstance(value, str) and isinstance(old, str):
        meter.grow(size_of(value) + value.count(old) * meter.measure(new))
    elif isinstance(value, bytes) and isinstance(old, bytes):
        meter.grow(size_of(value) + value.count(old) * size_of(new))
    else:
        meter.grow(meter.measure(value) * (1 + meter.measure(new)))


def _join(meter: Meter, items: Any, between: Any = "", *_: Any, **__: Any) -> None:
    count = len(items) if hasattr(items, "__len__") else 0
    meter.grow(meter.measure(items) + count * meter.measure(between))


def _method_join(meter: Meter, between: Any, items: Any = (), *_: Any) -> None:
    meter.walk(items)
    _join(meter, items, between)


def _split(meter: Meter, value: Any, *args: Any) -> None:
    """`args`: the separator and the number of cuts, either or none (they may come by name)."""
    between = next((arg for arg in args if isinstance(arg, (str, bytes))), None)
    if between is None:
        spaces = (c for c in SPACES if c.isascii() or not value.isascii())
        count = sum(_count(value, space) for space in spaces)
    else:
        count = value.count(between) if isinstance(between, str) == isinstance(value, str) else 0
    cuts = next((arg for arg in args if isinstance(arg, int)), -1)
    meter.pieces(value, 1 + (min(count, cuts) if cuts >= 0 else count))


def _split_back(meter: Meter, value: Any, *args: Any) -> None:
    _pairwise(meter, value, *args)
    _split(meter, value, *args)


def _split_lines(meter: Meter, value: Any, *_: Any) -> None:
    meter.pieces(value, 1 + sum(_count(value, end) for end in LINE_ENDS))


def _count(value: str | bytes, character: str) -> int:
    if isinstance(value, bytes):
        return value.count(character.encode("latin-1")) if character < "\u0100" else 0
    return value.count(character)


def _pairwise(meter: Meter, value: Any, *args: Any) -> None:
    """Methods that may compare each character of the value with each of the argument."""
    for arg in args:
        if isinstance(arg, (str, bytes)):
            meter.work(size_of(value) * len(arg) >> 10)


def _encode(meter: Meter, value: Any, *args: Any) -> None:
    """Other codecs take a time that grows with the square, or replace a letter by its name."""
    if not all(isinstance(arg, str) and arg.lower() in ENCODINGS for arg in args):
        raise LimitExceeded(f"another encoding than {', '.join(ENCODINGS)}")
    meter.grow(size_of(value))


def _hex(meter: Meter, value: Any, *_: Any) -> None:
    meter.grow(3 * size_of(value))


def _expand_tabs(meter: Meter, value: Any, tabsize: Any = 8) -> None:
    meter.grow(size_of(value) + _count(value, "\t") * _times("", tabsize))


def _refuse(meter: Meter, value: Any, *_: Any, **__: Any) -> None:
    raise LimitExceeded("a method that chat templates may not call")


def _indent(meter: Meter, value: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    lines = 1 + sum(_count(value, end) for end in LINE_ENDS) if isinstance(value, str) else 1
    each = size_of(width) if isinstance(width, str) else _times(value, width)
    meter.pieces(value, lines)
    meter.grow(meter.measure(value) + lines * each)


def _boxes(meter: Meter, value: Any, count: Any, *_: Any, **__: Any) -> None:
    meter.grow(8 * float(count) if isinstance(count, (int, float)) else 0)


def _format(meter: Meter, value: Any, *args: Any, **named: Any) -> None:
    modulo(meter, value, named or args)


def _round(meter: Meter, value: Any, precision: Any = 0, *_: Any, **__: Any) -> None:
    if isinstance(precision, int) and abs(precision) > 300:
        raise LimitExceeded("a number rounded to more than 300 digits")


def _to_number(meter: Meter, value: Any, *_: Any, **__: Any) -> None:
    if isinstance(value, (str, bytes)):
        _number(8 * len(value))


def _sum(meter: Meter, items: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, (int, float)):
        raise LimitExceeded("a sum of other things than numbers")


def _strip_tags(meter: Meter, value: Any, *_: Any) -> None:
    size = meter.measure(value)
    tags = value.count("<") if isinstance(value, str) else size
    meter.work(tags * size >> 12)  # each tag is cut out of the whole text
    if isinstance(value, str):
        _split(meter, value)


def _wrap(
    meter: Meter, value: Any, width: Any = 79, long: Any = True, by: Any = None, *_: Any
) -> None:
    lines = size_of(value) / max(1, width if isinstance(width, int) else 1)
    meter.work(size_of(value))
    meter.grow(size_of(value) + lines * (1 + size_of(by)))


def _escaped(meter: Meter, value: Any, *_: Any) -> None:
    """Each of five characters becomes a name of up to six."""
    if isinstance(value, str):
        meter.grow(size_of(value) + 5 * sum(map(value.count, "&<>\"'")))
    else:
        meter.grow(6 * meter.measure(value))


def _printed(meter: Meter, value: Any, *args: Any, **__: Any) -> None:
    """Filters that write a value out as it is."""
    meter.read(value)
    meter.grow(meter.measure(value))
    _pairwise(meter, value, *args)


def _by_words(meter: Meter, value: Any, *_: Any, **__: Any) -> None:
    """Filters that handle word by word in Python, each character written as six at most."""
    size = meter.measure(value)
    meter.work(size)
    meter.grow(6 * size)


def compared(meter: Meter, value: Any, *others: Any, **__: Any) -> None:
    for item in (value, *others):
        meter.read(item)
        if isinstance(item, CONTAINERS_AND_VIEWS):
            meter.measure(item)


FILTERS: Final[Mapping[str, Callable[..., None]]] = {
    "center": _to_width,
    "indent": _indent,
    "replace": _replace,
    "join": _join,
    "format": _format,
    "batch": _boxes,
    "slice": _boxes,
    "round": _round,
    "sum": _sum,
    "striptags": _strip_tags,
    "wordwrap": _wrap,
    **dict.fromkeys(("int", "float", "filesizeformat"), _to_number),
    **dict.fromkeys(("string", "trim", "upper", "lower", "capitalize", "truncate"), _printed),
    **dict.fromkeys(("e", "escape", "forceescape"), _escaped),
    **dict.fromkeys(("title", "pprint", "urlencode", "urlize", "wordcount", "xmlattr"), _by_words),
    **dict.fromkeys(("sort", "dictsort", "unique", "groupby", "min", "max"), compared),
}

# Filters that take a value apart item by item; of an iterator, those of COLLECTING keep all items.
COLLECTING: Final = frozenset(("groupby", "join", "max", "min", "sort", "sum", "unique", "in"))
WALKING: Final = frozenset(
    (
        *("batch", "dictsort", "groupby", "items", "join", "list", "map", "max", "min", "reject"),
        *("rejectattr", "reverse", "select", "selectattr", "slice", "sort", "sum", "unique"),
    )
)
# Filters that look no deeper into a value than its items.
SHALLOW: Final = WALKING.union(
    ("attr", "count", "d", "default", "first", "last", "length", "random", "tojson")
)

METHODS: Final[Mapping[str, Callable[..., None]]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _to_width),
    "replace": _replace,
    "join": _method_join,
    "split": _split,
    "rsplit": _split_back,
    "splitlines": _split_lines,
    **dict.fromkeys(("rfind", "rindex", "rpartition"), _pairwise),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), _pairwise),
    **dict.fromkeys(("encode", "decode"), _encode),
    "hex": _hex,
    "expandtabs": _expand_tabs,
    "striptags": _strip_tags,
    "unescape": _by_words,
    "escape": _escaped,
    **dict.fromkeys(("translate", "to_bytes", "from_bytes", "maketrans"), _refuse),
}


def filter_call(
    meter: Meter, name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Check a filter."""
    compared(meter, None, *args, *kwargs.values())
    if name in WALKING:
        meter.walk(value)
    elif name not in SHALLOW:
        compared(meter, value)
    check = FILTERS.get(name)
    if check is not None:
        check(meter, value, *args, **kwargs)


def method_call(meter: Meter, owner: Any, name: str, args: tuple[Any, ...]) -> None:
    """Check a call of a method that is written in C."""
    compared(meter, None, *args)
    if isinstance(owner, (str, bytes, int)):
        meter.read(owner)
        check = METHODS.get(name)
        if check is not None:
            check(meter, owner, *args)
    elif isinstance(owner, (list, tuple)) and name in ("index", "count"):
        meter.measure(owner)
    elif name == "isdisjoint":
        meter.walk(args[0] if args else ())


def type_call(meter: Meter, owner: type, name: str, args: tuple[Any, ...]) -> None:
    """Check a call of a class method (`dict.fromkeys`, `int.from_bytes`)."""
    if name == "fromkeys" or METHODS.get(name) is _refuse:
        _refuse(meter, owner)
    compared(meter, None, *args)
    if name == "escape":
        _escaped(meter, *args)


def collected(meter: Meter, value: Any) -> Any:
    """An iterator's items as a list, paid for; any other value as it is."""
    return list(meter.counted(value)) if isinstance(value, Iterator) else value
