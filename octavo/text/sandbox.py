"""Jinja2 with Hugging Face's conventions, made safe for strangers' templates: every loop, call and
growing string is counted, so that no template takes more than a fixed amount of time and memory.
`Rewriter` puts counters into the syntax tree; filters, tests and methods are checked here.
"""

import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from octavo.text import guards
from octavo.text.meter import LimitExceeded, Limits, Meter, size_of
from octavo.text.rewriter import CHARGED, CONCAT, HAYSTACK, MEASURED, SPREAD, TICK, Rewriter

METER = "octavo meter"  # with the space it is a variable that no template can name
MAX_RANGE = 100_000


class TemplateRefusal(TemplateError):
    """The template itself called `raise_exception`."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates. `now` tells `strftime_now` the time."""

    intercepted_binops = frozenset(guards.OPERATORS)

    def __init__(self, now: Callable[[], datetime] = datetime.now) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing is computed while compiling, where nobody counts
            finalize=_finalize,
            extensions=[_Generation, loopcontrols],
        )
        for name, function in list(self.filters.items()):
            self.filters[name] = _guarded(name, function, guards.filter_call)
        for name, function in list(self.tests.items()):
            self.tests[name] = _guarded(name, function, _test_call)
        self.filters.update(
            {
                "tojson": _tojson,
                TICK: _tick,
                CONCAT: _concat,
                CHARGED: _charged,
                MEASURED: _measured,
                HAYSTACK: _haystack,
                SPREAD: _spread,
            }
        )
        del self.globals["lipsum"]
        self.globals.update(
            range=_range,
            dict=_make_dict,
            namespace=_Namespace,
            raise_exception=_raise_exception,
            strftime_now=_Clock(now),
        )

    def compile_bounded(self, source: str) -> Template:
        """The template, with counters in it. Raises what Jinja2 raises."""
        with warnings.catch_warnings():
            # Python's compiler warns of `1[0]`, which is a stranger's and fails when rendered.
            warnings.simplefilter("ignore", SyntaxWarning)
            return self.from_string(Rewriter().visit(self.parse(source)))

    def render_bounded(
        self, template: Template, variables: Mapping[str, Any], limits: Limits, input_bytes: int
    ) -> str:
        """The text. Raises `LimitExceeded`, or what the template's own errors raise."""
        return template.render({**variables, METER: Meter(limits, input_bytes)})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        guards.OPERATORS[operator](_meter(context), left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        meter = _meter(__context)
        meter.tick()
        if isinstance(__obj, _Format):
            __obj.check(meter, args, kwargs)
        elif __obj is _Namespace or __obj is _make_dict:
            guards.compared(meter, args)
        else:
            args = _checked_method(meter, __obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        meter.grow(size_of(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        return _Format(self, value.__self__, value.__name__ == "format_map")


def _meter(context: Context) -> Meter:
    meter: Meter = context.parent[METER]
    return meter


def _checked_method(
    meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments to call it with, checked if it is a method of a value."""
    owner = getattr(method, "__self__", None)
    name = getattr(method, "__name__", "")
    if owner is None or isinstance(method, type):
        return args
    if name == "join":
        args = tuple(guards.collected(meter, item) for item in args)
    everything = (*args, *kwargs.values())
    if isinstance(owner, LoopContext):
        guards.compared(meter, everything)
    elif isinstance(owner, type):
        guards.type_call(meter, owner, name, everything)
    else:
        guards.method_call(meter, owner, name, everything)
    return args


# ------------------------------------------------------------------------------- filters of our own


@pass_context
def _tick(context: Context, value: Any, size_bytes: int) -> Any:
    _meter(context).tick(size_bytes)
    return value


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    """Every `{{ value }}` passes here before it is written."""
    meter = _meter(context)
    meter.grow(meter.measure(value))
    return value


@pass_context
def _concat(context: Context, values: tuple[Any, ...]) -> str:
    meter = _meter(context)
    meter.grow(sum(meter.measure(value) for value in values))
    return "".join(map(str, values))


@pass_context
def _charged(context: Context, value: Any) -> Any:
    _meter(context).tick(size_of(value))
    return value


@pass_context
def _measured(context: Context, value: Any) -> Any:
    guards.compared(_meter(context), value)
    return value


@pass_context
def _haystack(context: Context, value: Any) -> Any:
    meter = _meter(context)
    value = guards.collected(meter, value)
    meter.read(value)
    if isinstance(value, (list, tuple)):  # a mapping only looks the key up
        meter.measure(value)
    return value


@pass_context
def _spread(context: Context, value: Any) -> Any:
    _meter(context).walk(value)
    return value


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, as Hugging Face's templates expect it."""
    meter = _meter(context)
    if (isinstance(indent, int) and indent > 64) or (isinstance(indent, str) and len(indent) > 64):
        raise LimitExceeded("JSON indented by more than 64")
    width = sum(map(size_of, separators)) if separators else 3
    size = meter.measure(value) * (6 if ensure_ascii else 2)
    meter.grow(size * (1 + width // 8))  # an item counts eight bytes, which covers short separators
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        text = encoder.encode(value)
        meter.grow(size_of(text))
        return text
    return "".join(meter.counted(encoder.iterencode(value)))  # an item's indent has no bound


def _test_call(
    meter: Meter, name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    guards.compared(meter, value, *args, *kwargs.values())


def _guarded(name: str, function: Any, check: Callable[..., None]) -> Callable[..., Any]:
    """The filter or test, counted and checked before it runs; its iterators count their items."""
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", None)
    # Of a pair with an asynchronous twin, the signature is the plain filter's own, which may lack
    # the evaluation context that chooses between the two.
    own = inspect.unwrap(function)
    signature, takes_more = inspect.signature(own), hasattr(own, "jinja_pass_arg")

    @pass_context
    def guarded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        meter = _meter(context)
        meter.tick()
        if name in guards.COLLECTING:
            value = guards.collected(meter, value)
            args = tuple(guards.collected(meter, item) for item in args)
        lead = (None, value) if takes_more else (value,)
        check(meter, name, value, *_in_order(signature, lead, args, kwargs))
        if passed is None:
            result = function(value, *args, **kwargs)
        else:
            first = {"context": context, "eval_context": context.eval_ctx}.get(
                passed, context.environment
            )
            result = function(first, value, *args, **kwargs)
        if result is value:
            return result
        if isinstance(result, Iterator):
            return meter.counted(result)
        meter.grow(size_of(result))
        return result

    return guarded


def _in_order(
    signature: inspect.Signature,
    lead: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments behind `lead` as a check wants them, which knows no names: `width=9` where the
    width stands. Only what a filter itself takes by any name keeps it. TypeError: they do not fit.
    """
    if not kwargs:
        return args, {}
    bound = signature.bind(*lead, *args, **kwargs)
    bound.apply_defaults()
    return bound.args[len(lead) :], bound.kwargs


# ------------------------------------------------------------------------------------------ globals


class _Format:
    """`str.format` of one string."""

    def __init__(self, environment: BoundedEnvironment, template: str, is_map: bool) -> None:
        self._formatter = _BoundedFormatter(environment)
        self._template = template
        self._is_map = is_map

    def check(self, meter: Meter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        guards.format_call(meter, self._template, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        if not self._is_map:
            return self._formatter.vformat(self._template, args, kwargs)
        if len(args) != 1 or kwargs:
            raise TypeError("format_map() takes exactly one argument")
        return self._formatter.vformat(self._template, (), args[0])


class _BoundedFormatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        guards.format_spec(format_spec)
        text: str = super().format_field(value, format_spec)
        return text


class _Clock:
    """`strftime_now(format)`."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def __call__(self, format: str) -> str:  # noqa: A002 -- the name that templates may use
        if len(format) > 1000:
            raise LimitExceeded("a time format of more than 1000 characters")
        return self._now().strftime(format)


def _range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_RANGE:
        raise LimitExceeded(f"a range of more than {MAX_RANGE} numbers")
    return numbers


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message))


class _Namespace(Namespace):
    """Without names that begin with an underscore, which Python would look up for itself."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace may not hold {name!r}: it begins with an underscore")


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here its body is written."""

    tags = {"generation"}  # noqa: RUF012 -- as Jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


__all__ = ["BoundedEnvironment", "LimitExceeded", "Limits", "TemplateRefusal", "Undefined"]
