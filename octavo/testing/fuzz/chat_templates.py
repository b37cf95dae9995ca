"""Chat templates in Jinja: what grows, nests, recurses and reaches for what it must not have.

Every template renders or ends in InvalidRequest, and the account of its steps and bytes ends it:
never the clock, which is turned off here.
"""

from typing import Any

from octavo.errors import InvalidRequest
from octavo.testing.fuzz.bounds import check_refusal
from octavo.testing.fuzz.choices import Choices
from octavo.text.meter import Limits
from octavo.text.template import ChatTemplate

NAME = "templates"
CPU_S = 3.0  # under sanitizers and instrumentation, which cost about ten times
GROWTH_BYTES = 256 << 20
MAX_MESSAGE = 1200
LIMITS = Limits(steps=20_000, size_bytes=16 << 20, one_size_bytes=4 << 20, time_s=1e9)
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <|im_end|> kind."},
    {"role": "user", "content": [{"type": "text", "text": "Grüße " * 20}, {"type": "image"}]},
    {"role": "assistant", "content": "x\ty\r\n" * 200, "reasoning": "hm"},
    {"role": "user", "content": "{{ 7 * 7 }} %s {0} <b>&amp;</b> 12"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

VARIABLES = (
    *("messages", "messages[0].content", "messages[1].content[0].text", "messages[-2].content"),
    *("tools", "ns", "ns.s", "ns.l", "ns.n", "a", "b", "m", "loop", "self", "caller", "varargs"),
    *("kwargs", "bos_token", "add_generation_prompt", "documents", "namespace", "dict", "range"),
    *("cycler", "joiner", "strftime_now", "raise_exception", "lipsum", "undefined_name"),
    *("loop.index", "loop.cycle", "loop.changed", "loop.previtem", "loop.depth", "none", "true"),
)
NUMBERS = (
    *("0", "1", "2", "-1", "7", "60", "999", "100000", "90000", "2000000000", "-2000000000"),
    *("9" * 30, "9" * 400, "9" * 4000, "1e308", "1e999", "0.1", "0x" + "f" * 300, "1_0"),
)
TEXTS = (
    *("''", "'x'", "'ab' * 9", "'é€'", "'\\n\\t'", "' a b '", "'%s%s'", "'%9999d'", "'%*d'"),
    *("'{0}{0}'", "'{:>99999}'", "'{0.__class__}'", "'{0[0]}{a}'", "'{:{w}}'", "'<a>&<'"),
    *("'__class__'", "'content'", "'utf-16'", "'\\ufdd0'", "'<|im_end|>'", "'x' * 100000"),
    *("'%(a)s'", "'aaaaaaaa' * 99", "'__globals__'", "'_' ~ '_init__'", "'0'", "'a,b'"),
)
FILTERS = (
    *("abs", "attr", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e"),
    *("escape", "filesizeformat", "first", "float", "forceescape", "format", "groupby", "indent"),
    *("int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "pprint"),
    *("random", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select"),
    *("selectattr", "slice", "sort", "string", "striptags", "sum", "title", "tojson", "trim"),
    *("truncate", "unique", "upper", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
)
TESTS = (
    *("defined", "none", "string", "mapping", "iterable", "sequence", "number", "odd", "even"),
    *("callable", "sameas", "in", "eq", "lt", "divisibleby", "escaped", "filter", "undefined"),
)
METHODS = (
    *("split", "rsplit", "strip", "lstrip", "rstrip", "replace", "join", "format", "format_map"),
    *("center", "ljust", "rjust", "zfill", "upper", "title", "swapcase", "casefold", "encode"),
    *("decode", "hex", "splitlines", "partition", "rpartition", "find", "rfind", "index", "count"),
    *("startswith", "endswith", "expandtabs", "translate", "maketrans", "isidentifier", "items"),
    *("keys", "values", "get", "copy", "append", "update", "pop", "sort", "extend", "setdefault"),
    *("fromkeys", "to_bytes", "bit_length", "as_integer_ratio", "conjugate", "removeprefix"),
    *("__class__", "__init__", "__globals__", "__mro__", "__subclasses__", "_func", "__reduce__"),
    *("isdisjoint", "unescape", "striptags", "next", "reset", "cycle", "current", "__call__"),
)
OPERATORS = (
    *("+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "and", "or", "in"),
    *("not in", "+", "*", "~", "%"),
)
WORDS = (
    *("{{", "}}", "{%", "%}", "{%-", "-%}", "{#", "#}", "for", "in", "if", "else", "elif"),
    *("endfor", "endif", "set", "endset", "macro", "endmacro", "call", "endcall", "filter"),
    *("endfilter", "include", "import", "from", "extends", "block", "endblock", "raw", "endraw"),
    *("generation", "endgeneration", "break", "continue", "recursive", "with", "autoescape"),
    *("(", ")", "[", "]", "{", "}", "|", ".", ",", ":", "=", "==", "is", "not", "\n", " ", "'"),
    *("scoped", "without context", "do", "endwith", "trans", "debug", "\\", '"', "ns", "x"),
)
NAMED = ("attribute=", "width=", "indent=", "*", "**", "start=", "by=", "default=", "reverse=")
MAX_DEPTH = 4
MAX_PARTS = 40  # of one template


class _Writer:
    """Writes a template decision by decision."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._parts_left = MAX_PARTS

    def template(self) -> str:
        start = "{% set ns = namespace(s='xxxxxxxx', l=[1], n=3) %}{% set a = 'aé' * 500 %}"
        return start + self._body(0)

    def _body(self, depth: int) -> str:
        parts = []
        while self._parts_left > 0 and not self._choices.is_empty:
            self._parts_left -= 1
            parts.append(self._statement(depth))
            if self._choices.chance(2):
                break
        return "".join(parts)

    def _statement(self, depth: int) -> str:
        if depth >= MAX_DEPTH:
            return "{{ " + self._value(0) + " }}"
        write = self._choices.of(_STATEMENTS)
        return write(self, depth)

    def _output(self, depth: int) -> str:
        return "{{ " + self._value(0) + " }}"

    def _loop(self, depth: int) -> str:
        head = self._choices.of(("i", "i, j", "a", "x")) + " in " + self._value(1)
        if self._choices.chance(4):
            head += " if " + self._value(2)
        recursive = " recursive" if self._choices.chance(4) else ""
        inner = self._body(depth + 1)
        if recursive:
            inner += "{{ loop(" + self._value(2) + ") }}"
        return "{% for " + head + recursive + " %}" + inner + "{% endfor %}"

    def _range(self, depth: int) -> str:
        count = self._choices.of(("3", "60", "900", "90000", "range", "ns.n", "999999999"))
        return "{% for i in range(" + count + ") %}" + self._body(depth + 1) + "{% endfor %}"

    def _grow(self, depth: int) -> str:
        name = self._choices.of(("ns.s", "ns.l", "ns.n"))
        value = self._choices.of(
            (
                *(f"{name} + {name}", f"{name} ~ {name}", f"[{name}, {name}]", f"{name} * 2"),
                *(f"{{'a': {name}, 'b': {name}}}", f"({name}, {name})", self._value(1)),
                *(f"{name} | replace('x', 'xx')", f"[{name}, {name}] | join", f"{name} | tojson"),
                *(f"'{{0}}{{0}}'.format({name})", f"'%s%s' % ({name}, {name})"),
                *(f"{name} | list + [{name}]", f"{name} | center(99) ~ {name}"),
            )
        )
        turns = self._choices.of(("40", "3", "900"))
        return (
            "{% for i in range(" + turns + ") %}{% set " + f"{name} = {value}" + " %}{% endfor %}"
        )

    def _set(self, depth: int) -> str:
        return "{% set " + self._choices.of(("a", "b", "ns.s", "m")) + f" = {self._value(0)} %}}"

    def _set_block(self, depth: int) -> str:
        used = self._choices.of(("", " | upper", " | trim", " | indent(99)"))
        return "{% set b" + used + " %}" + self._body(depth + 1) + "{% endset %}"

    def _branch(self, depth: int) -> str:
        other = "{% else %}" + self._body(depth + 1) if self._choices.chance(3) else ""
        return "{% if " + self._value(1) + " %}" + self._body(depth + 1) + other + "{% endif %}"

    def _macro(self, depth: int) -> str:
        call = "{{ m(" + self._arguments(2) + ") }}"
        inner = self._body(depth + 1) + (call if self._choices.chance(2) else "")
        outer = "{% call(x) m(a) %}" + self._body(depth + 1) + "{% endcall %}"
        inner += "{{ caller(b) }}" if self._choices.chance(4) else ""
        after = outer if self._choices.chance(3) else call
        return "{% macro m(a, b=1) %}" + inner + "{% endmacro %}" + after

    def _filter_block(self, depth: int) -> str:
        name = self._choices.of(FILTERS)
        return "{% filter " + name + " %}" + self._body(depth + 1) + "{% endfilter %}"

    def _reach(self, depth: int) -> str:
        return self._choices.of(
            (
                *("{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}"),
                *("{% block z %}{{ self.z() }}{% endblock %}", "{{ super() }}", "{% break %}"),
                *("{{ self._TemplateReference__context }}", "{% continue %}", "{{ self.z() }}"),
                *("{% from messages import x %}", "{% include messages %}", "{% debug %}"),
                *("{{ raise_exception(" + self._value(2) + ") }}", "{% raw %}{{{% endraw %}"),
                *(
                    "{{ strftime_now(" + self._value(2) + ") }}",
                    "{% generation %}{% endgeneration %}",
                ),
                *("{% set x = cycler(*" + self._value(2) + ") %}{{ x.next() }}", "x" * 1000),
            )
        )

    def _value(self, depth: int) -> str:
        if depth >= MAX_DEPTH or self._choices.is_empty:
            return self._choices.of(VARIABLES)
        return self._choices.of(_VALUES)(self, depth + 1)

    def _variable(self, depth: int) -> str:
        return self._choices.of(VARIABLES)

    def _number(self, depth: int) -> str:
        return self._choices.of(NUMBERS)

    def _text(self, depth: int) -> str:
        return self._choices.of(TEXTS)

    def _operation(self, depth: int) -> str:
        left, right = self._value(depth), self._value(depth)
        return f"({left} {self._choices.of(OPERATORS)} {right})"

    def _filtered(self, depth: int) -> str:
        arguments = self._arguments(depth) if self._choices.chance(2) else ""
        name = self._choices.of(FILTERS)
        return f"({self._value(depth)} | {name}" + (f"({arguments}))" if arguments else ")")

    def _method(self, depth: int) -> str:
        name = self._choices.of(METHODS)
        call = f"({self._arguments(depth)})" if not self._choices.chance(5) else ""
        return f"({self._value(depth)}).{name}{call}"

    def _call(self, depth: int) -> str:
        return f"{self._choices.of(VARIABLES)}({self._arguments(depth)})"

    def _item(self, depth: int) -> str:
        key = self._value(depth)
        if self._choices.chance(3):
            key = self._choices.of((":", "1:", ":-1", "::-1", f"{key}:{key}"))
        return f"({self._value(depth)})[{key}]"

    def _test(self, depth: int) -> str:
        argument = f"({self._value(depth)})" if self._choices.chance(3) else ""
        return f"({self._value(depth)} is {self._choices.of(TESTS)}{argument})"

    def _container(self, depth: int) -> str:
        one, two = self._value(depth), self._value(depth)
        forms = (f"[{one}, {two}]", f"({one}, {two})", f"{{{one}: {two}}}", f"[{one}] * 1000")
        return self._choices.of(forms)

    def _choice(self, depth: int) -> str:
        return f"({self._value(depth)} if {self._value(depth)} else {self._value(depth)})"

    def _arguments(self, depth: int) -> str:
        some = [self._value(depth) for _ in range(self._choices.number(3))]
        if self._choices.chance(4):
            some.append(self._choices.of(NAMED) + self._value(depth))
        return ", ".join(some)


_STATEMENTS = (
    *(_Writer._output, _Writer._output, _Writer._loop, _Writer._range, _Writer._grow),
    *(_Writer._set, _Writer._set_block, _Writer._branch, _Writer._macro, _Writer._filter_block),
    *(_Writer._reach, _Writer._grow, _Writer._output),
)
_VALUES = (
    *(_Writer._variable, _Writer._number, _Writer._text, _Writer._operation, _Writer._filtered),
    *(_Writer._method, _Writer._call, _Writer._item, _Writer._test, _Writer._container),
    *(_Writer._choice, _Writer._filtered, _Writer._method, _Writer._operation),
)


def template(data: bytes) -> str:
    """The template that these bytes decide: grown from Jinja's grammar, nested, of its words in
    any order, or the bytes themselves."""
    choices = Choices(data)
    form = choices.number(16)
    if form < 12:
        return _Writer(choices).template()
    if form == 12:
        return _nested(choices)
    if form < 15:
        return " ".join(choices.of(WORDS) for _ in range(min(len(data), 200)))
    return choices.rest().decode("utf-8", "replace")


def _nested(choices: Choices) -> str:
    """Brackets, blocks or operators, many thousand deep or long."""
    count = choices.of((10, 100, 1000, 5000))
    opening, inner, closing = choices.of(
        (
            *(
                ("(", "1", ")"),
                ("[", "1", "]"),
                ("{1:", "1", "}"),
                ("not ", "1", ""),
                ("-", "1", ""),
            ),
            *(
                ("1+", "1", ""),
                ("1 ~ ", "1", ""),
                ("a.", "b", ""),
                ("a[", "1", "]"),
                ("'", "", "'"),
            ),
            *(("1 if ", "1", ""), ("a|", "e", ""), ("1,", "1", ""), ("a and ", "b", "")),
        )
    )
    expression = opening * count + inner + closing * count
    block = choices.of(("if 1", "for i in [1]", "set x", "macro m()", "filter e", "call m()"))
    blocks = "{% " + block + " %}" + "x" + "{% end" + block.split(" ")[0].split("(")[0] + " %}"
    if choices.chance(2):
        word = "{% " + block + " %}"
        return word * min(count, 300) + blocks
    return choices.of(("{{ ", "{% set x = ", "{% if ", "{{ m(")) + expression + " }}"


def run(data: bytes) -> str:
    """Renders; "rendered" or the beginning of the refusal."""
    source = template(data)
    chat = ChatTemplate(
        source,
        bos_token="<s>",
        eos_token="</s>",
        special_tokens=("<|im_end|>", "<|im_start|>"),
        limits=LIMITS,
    )
    if chat.is_fallback:
        return "not compiled"
    try:
        chat.render(MESSAGES, tools=TOOLS)
    except InvalidRequest as error:
        return check_refusal(error, MAX_MESSAGE, " seconds; it is refused", lines=True)[:34]
    return "rendered"
