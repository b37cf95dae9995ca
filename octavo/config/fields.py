"""How one dataclass field describes one flag: its names, its kind of value, its help text.

The command line, the environment variables and docs/flags.md are all made from these descriptions.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")
Converter = Callable[[str], Any]  # raises ValueError with a sentence about the value


@dataclass(frozen=True, slots=True)
class Flag:
    """The outside of one field.

    names: the flag and its aliases, first the usual one; empty: only an environment variable.
    off_names: for a switch, the names that say no. convert: turns the text of a value into the
    field's value; None makes it a switch. allowed: the values for the help (checked elsewhere).
    family: the name of a tri-state in messages; its flags may be given once in all. repeats: every
    occurrence adds one value to a tuple. env: the variable that is read too, `env_wins` says that
    it beats the flag. no_effect: why the flag is accepted although it changes nothing. secret: its
    value is never shown.
    """

    names: tuple[str, ...]
    doc: str
    convert: Converter | None
    metavar: str = "VALUE"
    off_names: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    family: str = ""
    repeats: bool = False
    env: str = ""
    env_wins: bool = False
    no_effect: str = ""
    secret: bool = False
    default_text: str = ""


def option(
    default: T, *names: str, doc: str, convert: Converter, secret: bool = False, **rest: Any
) -> T:
    """A field whose flag takes a value. `rest` are fields of `Flag`."""
    flag = Flag(names, doc, convert, secret=secret, **rest)
    described: T = field(default=default, metadata={"flag": flag}, repr=not secret)
    return described


def switch(default: T, *names: str, doc: str, off: tuple[str, ...] = (), **rest: Any) -> T:
    """A field whose flags take no value: `names` say yes, `off` say no."""
    flag = Flag(names, doc, None, off_names=off, **rest)
    described: T = field(default=default, metadata={"flag": flag})
    return described


def same(group: Any, name: str) -> Any:
    """The described field of another options class, with its default, for a further one."""
    member = next(member for member in fields(group) if member.name == name)
    return field(default=member.default, repr=member.repr, metadata=member.metadata)


def flags_of(group: Any) -> Iterator[tuple[Field[Any], Flag]]:
    """The described fields of an options class (or of an instance), in order."""
    for member in fields(group):
        if (flag := member.metadata.get("flag")) is not None:
            yield member, flag


def default_in_words(member: Field[Any], flag: Flag) -> str:
    """The default as the help shows it."""
    if flag.default_text:
        return flag.default_text
    if isinstance(member.default, bool):
        return "on" if member.default else "off"
    return "unset" if member.default in (None, "", ()) else str(member.default)


# --------------------------------------------------------------------------------- kinds of values


def text(value: str) -> str:
    """Any text but the empty one."""
    if not value:
        raise ValueError("must not be empty")
    return value


def any_text(value: str) -> str:
    """Any text, the empty one too."""
    return value


def integer(minimum: int, maximum: int | None = None) -> Converter:
    """A whole number in a range, both ends allowed."""
    wanted = f"{minimum} or more" if maximum is None else f"from {minimum} to {maximum}"

    def convert(value: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
            raise ValueError(f"must be a whole number {wanted}, not {value!r}")
        number = int(value)
        if number < minimum or (maximum is not None and number > maximum):
            raise ValueError(f"must be {wanted}, not {number}")
        return number

    return convert


def number(minimum: float, maximum: float | None = None) -> Converter:
    """A finite number in a range, both ends allowed."""
    wanted = f"{minimum:g} or more" if maximum is None else f"from {minimum:g} to {maximum:g}"

    def convert(value: str) -> float:
        try:
            result = float(value)
        except ValueError:
            raise ValueError(f"must be a number {wanted}, not {value!r}") from None
        if not minimum <= result <= (float("1e18") if maximum is None else maximum):
            raise ValueError(f"must be {wanted}, not {value}")
        return result

    return convert


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size_bytes(value: str) -> int:
    """A number of bytes: `1048576`, or with a binary unit `512M`, `2G`, `2GiB`."""
    match = re.fullmatch(r"([0-9]{1,18})([kmgt]?)(?:i?b)?", value.strip().lower())
    if match is None:
        raise ValueError(f"must be bytes such as 1048576, 512M or 2G, not {value!r}")
    return int(match[1]) * _UNITS[match[2]]
