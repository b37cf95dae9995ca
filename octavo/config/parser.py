"""From a command line to a checked `Config`: the argparse parser is built from the fields.

argparse writes the help and holds one action a flag. It does not read the line: it would take
`--served-model-name --x` for two flags. `bind_values` does, left to right.
"""

import argparse
import os
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from octavo import __version__
from octavo.config import checks
from octavo.config.config import GROUPS, Config, config_from
from octavo.config.environment import environment_values
from octavo.config.fields import Flag, default_in_words, flags_of
from octavo.config.options import DEFAULT_MODEL
from octavo.errors import UsageError

E = TypeVar("E")
SERVES = "Serve MODEL over the OpenAI API."
ARGUMENTS = "[MODEL] [flags]"
MODEL_FLAG = ("--model",)


class Shown(Exception):
    """The command line asked for a text (help, version) in place of work."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def usage(prog: str, arguments: str = ARGUMENTS) -> str:
    """The usage lines that accompany a usage error."""
    return f"usage: {prog} {arguments}\n       {prog} --help lists every flag"


def parse_args(
    argv: Sequence[str],
    *,
    prog: str = "octavo serve",
    default_model: str = DEFAULT_MODEL,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The checked configuration of a command line (without the program's name) and environment.

    Raises UsageError, ConfigError or NotBuilt, and Shown for --help and --version.
    """
    values = _values(argv, build_parser(prog, GROUPS.values()), MODEL_FLAG)
    return checked_config(values, default_model, os.environ if environ is None else environ)


def parse_args_and(
    extra: type[E],
    argv: Sequence[str],
    *,
    prog: str,
    default_model: str = DEFAULT_MODEL,
    environ: Mapping[str, str] | None = None,
) -> tuple[Config, E]:
    """As `parse_args`, with further flags from the fields of the options class `extra`."""
    values, own = parse_values(GROUPS, extra, argv, prog=prog)
    return checked_config(values, default_model, os.environ if environ is None else environ), own


def parse_values(
    groups: Iterable[str],
    extra: type[E],
    argv: Sequence[str],
    *,
    prog: str,
    description: str = SERVES,
    arguments: str = ARGUMENTS,
    positional: Sequence[str] = MODEL_FLAG,
) -> tuple[dict[str, Any], E]:
    """The values given of some groups of `Config`, by field name, and those of `extra`.

    arguments: how the usage writes them. positional: the flags that words without a flag stand for,
    in their order. Each value is checked alone. Raises UsageError, and Shown for --help and
    --version.
    """
    described = [*(GROUPS[name] for name in groups), extra]
    parser = build_parser(prog, described, description, arguments)
    values = _values(argv, parser, positional)
    names = [member.name for member, _ in flags_of(extra)]
    return values, extra(**{name: values.pop(name) for name in names if name in values})


def build_parser(
    prog: str, groups: Iterable[Any], description: str = SERVES, arguments: str = ARGUMENTS
) -> argparse.ArgumentParser:
    """The parser of the fields of these options classes. Values not given stay unset."""
    groups = list(groups)
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} {arguments}",
        description=f"{description} Flags take their value as --flag VALUE or --flag=VALUE; "
        "of a flag given twice the last value counts.",
        epilog=_environment_help(groups),
        formatter_class=_Formatter,
        add_help=False,
    )
    parser.add_argument(
        "-h", "--help", action=_Help, nargs=0, default=argparse.SUPPRESS, help="Show this text."
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="Show the version."
    )
    for group in groups:
        section = parser.add_argument_group(group.__doc__ or group.__name__)
        for member, flag in flags_of(group):
            if flag.names:
                words = f"{_sentence(flag)} Default: {default_in_words(member, flag)}."
                _add(section, member.name, flag, words.replace("%", "%%"))
    return parser


def bind_values(
    argv: Sequence[str], takes_value: Mapping[str, bool], positional: Sequence[str] = MODEL_FLAG
) -> list[tuple[str, str | None]]:
    """The flags in order, each with its value; words without one as the flags `positional`, last.

    A word after a flag that takes a value is its value, whatever it looks like. Raises UsageError.
    """
    bound: list[tuple[str, str | None]] = []
    lone: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            lone += words
        elif not word.startswith("-") or word == "-":
            lone.append(word)
        else:
            bound.append(_bind(word, words, takes_value))
    if len(lone) > len(positional):
        wanted = " and ".join(flag.removeprefix("--").upper() for flag in positional)
        raise UsageError(
            f"{f'one {wanted}' if wanted else 'no argument'} may stand without a flag, but "
            f"{len(lone)} were given: {lone}"
        )
    given = {name for name, _ in bound}
    for flag, word in zip(positional, lone, strict=False):
        if flag in given:
            name = flag.removeprefix("--").upper()
            raise UsageError(f"{name} is given twice, as {word!r} and by {flag}")
        bound.append((flag, word))
    return bound


def _bind(
    word: str, rest: Iterable[str], takes_value: Mapping[str, bool]
) -> tuple[str, str | None]:
    name, equals, value = word.partition("=")
    if name not in takes_value:
        raise UsageError(f"unknown flag {name}")
    if not takes_value[name]:
        if equals:
            raise UsageError(f"{name} takes no value")
        return name, None
    if equals:
        return name, value
    for next_word in rest:
        return name, next_word
    raise UsageError(f"{name} needs a value")


def _values(
    argv: Sequence[str], parser: argparse.ArgumentParser, positional: Sequence[str]
) -> dict[str, Any]:
    """Values by field name, only those given."""
    # argparse has no public list of its flags; `_option_string_actions` has been it since 2.7.
    actions = parser._option_string_actions
    takes_value = {name: action.nargs != 0 for name, action in actions.items()}
    namespace = argparse.Namespace()
    for name, text in bind_values(argv, takes_value, positional):
        action = actions[name]
        if text is None or not callable(action.type):
            action(parser, namespace, text, name)
            continue
        try:
            value: Any = action.type(text)
        except ValueError as error:
            raise UsageError(f"{name} {error}") from None
        action(parser, namespace, value, name)
    return vars(namespace)


def checked_config(
    values: dict[str, Any], default_model: str, environ: Mapping[str, str]
) -> Config:
    """A checked configuration of values by field name, completed from the environment."""
    said = []
    if "model" not in values:
        values["model"] = default_model
        if default_model == DEFAULT_MODEL:
            said.append(f"no model named: serving {DEFAULT_MODEL}")
    given = frozenset(values)
    values |= environment_values(environ, given)
    config = checks.check(config_from(values))
    return replace(
        config,
        notices=(*said, *checks.notices(config)),
        warnings=(*_without_effect(given, config), *checks.warnings(config)),
    )


def _without_effect(given: Collection[str], config: Config) -> list[str]:
    """One line for each flag given that changes nothing."""
    lines = []
    for name, group in GROUPS.items():
        for member, flag in flags_of(group):
            if member.name not in given or not flag.names:
                continue
            if flag.no_effect:
                lines.append(f"{flag.names[0]} has no effect: {flag.no_effect}")
            elif (name == "video" and config.video.video_dit is None) or (
                name == "speech" and config.speech.speech_model is None
            ):
                lines.append(f"{flag.names[0]} has no effect: {name} is off")
    return lines


# ------------------------------------------------------------------------------ argparse's pieces


class _Formatter(argparse.HelpFormatter):
    """One flag with its value once, its aliases behind; descriptions in their own column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)  # a flag stays in one piece

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)
        return names if action.nargs == 0 else f"{names} {action.metavar}"


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        raise Shown(parser.format_help())


class _Version(argparse.Action):
    def __call__(self, *_: Any) -> NoReturn:
        raise Shown(f"octavo {__version__}\n")


class _Setting(argparse.Action):
    """A flag that sets its field to `value`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, self.value(namespace, values, option_string))

    def value(self, namespace: argparse.Namespace, given: Any, name: str | None) -> Any:
        raise NotImplementedError


class _Switch(_Setting):
    """A flag without value. A tri-state's flags may be given once in all."""

    def __init__(self, option_strings: Sequence[str], dest: str, flag: Flag, **rest: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **rest)
        self.flag = flag

    def value(self, namespace: argparse.Namespace, given: Any, name: str | None) -> bool:
        if self.flag.family and hasattr(namespace, self.dest):
            raise UsageError(
                f"{name}: {self.flag.family} is already set; "
                f"give only one of {', '.join(self.option_strings)}, once"
            )
        return name not in self.flag.off_names


class _Append(_Setting):
    """A flag of which every occurrence adds a value to a tuple."""

    def value(self, namespace: argparse.Namespace, given: Any, name: str | None) -> tuple[Any, ...]:
        return (*getattr(namespace, self.dest, ()), given)


def _add(section: Any, dest: str, flag: Flag, words: str) -> None:
    names = (*flag.names, *flag.off_names)
    common: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS, "help": words}
    if flag.convert is None:
        section.add_argument(*names, action=_Switch, flag=flag, **common)
        return
    if flag.repeats:
        common["action"] = _Append
    section.add_argument(*names, type=flag.convert, metavar=flag.metavar, **common)


def _sentence(flag: Flag) -> str:
    return f"{flag.doc} One of {', '.join(flag.allowed)}." if flag.allowed else flag.doc


def _environment_help(groups: Iterable[Any]) -> str:
    names = [flag.env for group in groups for _, flag in flags_of(group) if flag.env]
    return f"Environment variables (see docs/flags.md): {', '.join([*names, 'OCTAVO_CACHE'])}."
