"""`octavo tokenize`: text to the ids and pieces of a model's vocabulary, and back; no weights."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.report import exit_code_of
from octavo.cli.terminal import escaped, escaped_lines, read_stdin, table
from octavo.config import ModelOptions, parse_values, usage
from octavo.config.fields import any_text, option, same, switch, text
from octavo.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer

PROG = "octavo tokenize"
ARGUMENTS = "MODEL [TEXT] [flags]"


@dataclass(frozen=True)
class TokenizeOptions:
    """Tokens"""

    model: str | None = option(
        None,
        "--model",
        doc="As for octavo serve, but nothing is fetched. The same as the argument MODEL.",
        convert=text,
        default_text="none: it must be given",
    )
    text: str | None = option(
        None,
        "--text",
        doc="What to tokenise; -: standard input without its last line break. The same as the "
        "argument TEXT.",
        convert=any_text,
        metavar="TEXT",
        default_text="standard input",
    )
    tokenizer_config: str | None = same(ModelOptions, "tokenizer_config")
    add_special_tokens: bool | None = switch(
        None,
        "--add-special-tokens",
        off=("--no-add-special-tokens",),
        doc="The tokens that the model puts around a text, as its BOS.",
        default_text="on",
    )
    parse_special: bool | None = switch(
        None,
        "--parse-special",
        off=("--no-parse-special",),
        doc="Control tokens that the text spells become their ids; off: they are ordinary text, as "
        "in the messages of chats.",
        default_text="on",
    )
    ids: bool = switch(False, "--ids", doc="Print the ids alone, on one line.")
    count: bool = switch(False, "--count", doc="Print how many tokens there are.")
    json: bool = switch(False, "--json", doc="Print a JSON object, with the names of /tokenize.")
    decode: bool = switch(
        False, "--decode", doc="TEXT holds ids (1 2 3 or [1, 2, 3]); print the text they are."
    )


def tokenize_command(argv: Sequence[str]) -> int:
    """Parse the flags, tokenise, print, and return the exit code."""
    return exit_code_of(lambda: _tokenize(argv), PROG, usage(PROG, ARGUMENTS), who="tokenize")


def _tokenize(argv: Sequence[str]) -> int:
    _, options = parse_values(
        (),
        TokenizeOptions,
        argv,
        prog=PROG,
        description="Show the tokens of TEXT in the vocabulary of MODEL. No weights are loaded.",
        arguments=ARGUMENTS,
        positional=("--model", "--text"),
    )
    model = _check(options)
    given = options.text
    if given is None or given == "-":
        given = read_stdin("the text", "a text is needed: as TEXT, or on standard input")
    _check_unicode(given)
    ids = parse_ids(given) if options.decode else []
    tokenizer = _open(model, options.tokenizer_config)
    if options.decode:
        _print_text(tokenizer, ids, options.json)
    else:
        _print_tokens(tokenizer, encode(tokenizer, given, options), options)
    return 0


def _check(options: TokenizeOptions) -> str:
    """The model. Raises UsageError for flags that exclude each other."""
    if options.model is None:
        raise UsageError("a MODEL is needed, whose vocabulary it is")
    forms = [f"--{name}" for name in ("ids", "count", "json") if getattr(options, name)]
    if len(forms) > 1:
        raise UsageError(f"{' and '.join(forms)} exclude each other")
    given: dict[str, bool | None] = {
        "--ids": options.ids or None,
        "--count": options.count or None,
        "--add-special-tokens": options.add_special_tokens,
        "--parse-special": options.parse_special,
    }
    for flag, value in given.items():
        if options.decode and value is not None:
            raise UsageError(f"{flag} is for text: it says nothing with --decode")
    return options.model


def _check_unicode(given: str) -> None:
    """Bytes of the command line that are no UTF-8 came as lone surrogates. Raises ConfigError."""
    try:
        given.encode()
    except UnicodeEncodeError as error:
        where = f"character {error.start} is {given[error.start]!a}"
        raise ConfigError(f"the text is no UTF-8: {where}") from None


def _open(model: str, tokenizer_config: str | None) -> "Tokenizer":
    from octavo.text.opening import open_tokenizer
    from octavo.weights.resolve import find_model

    path = find_model(model)
    if tokenizer_config is None:
        return open_tokenizer(path)
    if path.is_file():
        raise ConfigError("--tokenizer-config says nothing of the vocabulary of a .gguf file")
    return open_tokenizer(path, Path(tokenizer_config))


def encode(tokenizer: "Tokenizer", given: str, options: TokenizeOptions) -> list[int]:
    """The ids of a text, as the flags want them."""
    add = options.add_special_tokens is not False
    if options.parse_special is not False:
        return tokenizer.encode(given, add)
    from octavo.text.marks import Marker, free_characters
    from octavo.text.tokenizer import RenderedPrompt

    [mark] = free_characters([given], 1)
    marked = Marker(tokenizer.special_tokens).mark(given, mark)
    return tokenizer.encode_rendered(RenderedPrompt(marked, mark), add)


def parse_ids(given: str) -> list[int]:
    """`1 2 3`, `1,2,3` or `[1, 2, 3]`. Raises UsageError."""
    bare = given.strip()
    is_list = len(bare) > 1 and bare[0] == "[" and bare[-1] == "]"
    words = [word for word in re.split(r"[\s,]+", bare[1:-1] if is_list else bare) if word]
    if not is_list and ("[" in bare or "]" in bare):
        raise UsageError("--decode: a [ at the start and a ] at the end belong together")
    for word in words:
        if not re.fullmatch(r"[0-9]{1,18}", word):
            raise UsageError(f"--decode: ids are whole numbers, not {escaped(word, 40)!r}")
    return [int(word) for word in words]


# ---------------------------------------------------------------------------------- on the page


def _print_text(tokenizer: "Tokenizer", ids: list[int], as_json: bool) -> None:
    for number in ids:
        if number >= tokenizer.vocab_size:
            raise ConfigError(
                f"the id {number} is not in the vocabulary; ids lie below {tokenizer.vocab_size}"
            )
    words = tokenizer.decode(ids)
    if as_json:
        print(json.dumps({"prompt": words}))
    elif sys.stdout.isatty():
        print(escaped_lines(words))
    else:
        sys.stdout.buffer.write(words.encode())
        sys.stdout.buffer.flush()


def _print_tokens(tokenizer: "Tokenizer", ids: list[int], options: TokenizeOptions) -> None:
    names = [tokenizer.token_str(number) for number in ids]
    if options.ids:
        print(*ids)
    elif options.count:
        print(len(ids))
    elif options.json:
        print(json.dumps({"count": len(ids), "tokens": ids, "token_strs": names}))
    else:
        rows = [("id", "piece", "text")]
        for number, name in zip(ids, names, strict=True):
            special = "  control token" if number in tokenizer.special_ids else ""
            rows.append(
                (str(number), escaped(name), _spelt(tokenizer.token_bytes(number)) + special)
            )
        print(table(rows, right=(0,)), end="")
        print(f"{len(ids)} tokens")


def _spelt(piece: bytes) -> str:
    """Quoted text, or bytes where a token is a part of a character."""
    try:
        return repr(piece.decode())
    except UnicodeDecodeError:
        return repr(piece)
