"""Worst cases of chat templates beyond loops and long texts: deep and long sources, growth by
containers, sorting, what reaches outside, and templates that say too much.
"""

import logging
import warnings

import pytest

from octavo.errors import InvalidRequest
from octavo.text.meter import Limits
from octavo.text.template import MAX_SAID, MAX_SOURCE, ChatTemplate

MESSAGES = [{"role": "user", "content": "y" * 10_000}]
# No clock: what these spend is counted, not timed.
LIMITS = Limits(steps=20_000, size_bytes=16 << 20, one_size_bytes=4 << 20, time_s=1e9)

GROWING = (
    "{% set ns = namespace(v=BEGIN) %}{% for i in range(9000) %}{% set ns.v = BODY %}{% endfor %}"
)


def growing(body: str, begin: str = "[1, 2]") -> str:
    return GROWING.replace("BEGIN", begin).replace("BODY", body)


REFUSED = {
    "list plus itself": growing("ns.v + ns.v"),
    "list in a list": growing("[ns.v, ns.v]") + "{{ ns.v | tojson }}",
    "list times": growing("ns.v * 3"),
    "list times, times, times": "{{ [[[[nothing] * 1000] * 1000] * 1000] * 1000 }}",
    "dictionary of itself": growing("{'a': ns.v, 'b': ns.v}") + "{{ ns.v }}",
    "dict call": growing("dict(a=ns.v, b=ns.v)") + "{{ ns.v | string }}",
    "namespace in a namespace": growing("namespace(a=ns.v, b=ns.v)") + "{{ ns.v }}",
    "items of items": growing("(ns.v | list) + (ns.v | list)"),
    "batches": growing("ns.v | batch(2) | list + ns.v"),
    "wordwrap": growing("ns.v | wordwrap(1, wrapstring='xxxx')", "'a b c d'"),
    "indent": growing("ns.v | indent(64, true)", "'a\nb\nc'"),
    "urlencode": growing("ns.v | urlencode", "'%%%%'"),
    "escape": growing("ns.v | string | forceescape", "'&<>'"),
    "xmlattr": growing("{'a': ns.v ~ ns.v} | xmlattr", "'x'"),
    "title": growing("ns.v ~ ns.v | title", "'ab'"),
    "tojson of text": growing("ns.v | tojson", "'\"\"'"),
    "pprint": growing("[ns.v] | pprint", "'\\\\'"),
    "replace": growing("ns.v | replace('', 'ab')", "'x'"),
    "format": growing("'%s%s%s' | format(ns.v, ns.v, ns.v)", "'x'"),
    "format by name": growing("'{a}{a}'.format(a=ns.v)", "'x'"),
    "join": growing("([ns.v] * 4) | join(ns.v)", "'x'"),
    "center": growing("ns.v | center(ns.v | length * 3)", "'x'"),
    "ljust": growing("ns.v.ljust(ns.v | length * 3, 'é')", "'x'"),
    "square": growing("ns.v * ns.v", "3"),
    "power": growing("ns.v ** 3", "3"),
    "sorted": "{% set l = range(90000) | list %}{% for i in range(900) %}"
    "{% set x = l | sort %}{% endfor %}",
    "sorted by text": "{% for i in range(900) %}"
    "{% set x = messages[0].content | sort(reverse=true) %}{% endfor %}",
    "grouped": "{% set l = range(90000) | list %}{% for i in range(900) %}"
    "{% set x = l | groupby(0) %}{% endfor %}",
    "unique": "{% for i in range(900) %}{% set x = range(90000) | unique | list %}{% endfor %}",
    "dictsort": "{% set d = namespace(d={}) %}{% for i in range(900) %}"
    "{% set x = {'a': messages, 'b': messages[0].content} | dictsort %}"
    "{% set y = messages[0].content | list %}{% endfor %}",
    "found in a list": "{% set l = range(90000) | list %}"
    "{% for i in range(900) %}{{ -1 in l }}{% endfor %}",
    "list index": "{% set l = range(90000) | list %}{% for i in range(900) %}"
    "{{ l.count(-1) }}{% endfor %}",
    "macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "macros in turn": "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}"
    "{{ a() }}{% endmacro %}{{ a() }}",
    "caller": "{% macro m() %}{% for i in range(900) %}{{ caller() }}{% endfor %}{% endmacro %}"
    "{% call m() %}{% call m() %}x{% endcall %}{% endcall %}",
    "block that calls itself": "{% block z %}{{ self.z() }}{% endblock %}",
    "recursive loop": "{% for x in [[1]] recursive %}{{ loop([x, x]) }}{% endfor %}",
    "cycler": "{% set c = cycler(*range(9)) %}{% for i in range(90000) %}"
    "{{ c.next() }}{% endfor %}",
    "joiner": "{% set j = joiner('x' * 100000) %}{% for i in range(90000) %}{{ j() }}{% endfor %}",
    "filter block": "{% filter indent(4000) %}{% for i in range(9000) %}x\n"
    "{% endfor %}{% endfilter %}",
    "set block": "{% for i in range(90000) %}{% set b %}"
    "{{ messages[0].content }}{% endset %}{% endfor %}",
    "slices": "{% set s = 'x' * 4000000 %}{% for i in range(900) %}"
    "{{ s[i:] | length }}{% endfor %}",
    "range of range": "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "trim by name": "{% set a = 'a' * 4000000 %}{{ a | trim(chars='b' * 2000000 + 'a') | length }}",
    "center by name": "{{ 'x' | center(width=2000000000) }}",
    "indent by name": "{{ 'x\n' | indent(first=true, width=2000000000) }}",
    "replace by name": growing("ns.v | replace(new='ab', old='')", "'x'"),
    "batch by name": "{{ [1] | batch(fill_with='x', linecount=1000000000) | list }}",
    "round by name": "{{ 1 | round(precision=99999999, method='ceil') }}",
}
REACHING = {
    "include": "{% include 'x' %}",
    "include a list": "{% include ['x', messages[0].content] %}",
    "import": "{% import 'x' as y %}{{ y }}",
    "from": "{% from 'x' import y %}{{ y }}",
    "extends": "{% extends 'x' %}",
    "extends a message": "{% extends messages[0].content %}",
    "class": "{{ (''.__class__.__mro__[1]).__subclasses__() }}",
    "class by a filter": "{{ messages | map(attribute='__class__') | map('string') | list }}",
    "class by names": "{{ '' | attr('__cl' ~ 'ass__') | attr('__mro__') }}",
    "globals": "{{ raise_exception['__globals__'] }}{{ namespace.__init__.__globals__ }}",
    "code of a macro": "{% macro m() %}{% endmacro %}{{ m._func.__code__ }}"
    "{{ m.__call__.__func__ }}",
    "format reaches": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "format map reaches": "{{ '{a.__class__}'.format_map({'a': messages}) }}",
    "loop": "{% for x in [1] %}{{ loop.__init__.__globals__ }}{{ loop._iterator }}{% endfor %}",
    "generator": "{{ (messages | map('upper')).gi_frame }}",
}


def render(source: str) -> str:
    template = ChatTemplate(
        source, bos_token=None, eos_token=None, special_tokens=(), limits=LIMITS
    )
    assert not template.is_fallback
    return template.render(MESSAGES).text


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    with pytest.raises(InvalidRequest, match="the chat template asks for"):
        render(REFUSED[case])


@pytest.mark.parametrize("case", REACHING)
def test_nothing_is_reached(case: str) -> None:
    """Refused, or empty as any name that is unknown."""
    text = ""
    try:
        text = render(REACHING[case])
    except InvalidRequest as error:
        assert "template" in str(error)  # noqa: PT017 - either is right
    assert "class" not in text
    assert "function" not in text
    assert "object at" not in text


DEEP = {
    "brackets": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "sum": "{{ 1" + "+1" * 20_000 + " }}",
    "not": "{{ " + "not " * 9000 + "1 }}",
    "attributes": "{{ a" + ".a" * 20_000 + " }}",
    "filters": "{{ a" + "|e" * 20_000 + " }}",
    "conditions": "{{ " + "1 if 1 else " * 5000 + "1 }}",
    "if": "{% if 1 %}" * 900 + "{% endif %}" * 900,
    "for": "{% for i in [1] %}" * 900 + "{% endfor %}" * 900,
    "elif": "{% if 0 %}" + "{% elif 0 %}" * 5000 + "{% endif %}",
    "macros": "{% macro m() %}" * 900 + "{% endmacro %}" * 900,
    "number": "{{ " + "9" * 60_000 + " }}",
    "open": "{{" * 30_000,
    "comment": "{#" * 30_000,
    "quotes": "{{ " + "'" * 60_001 + " }}",
    "too long": "{{ a }}" * (MAX_SOURCE // 7 + 1),
}


@pytest.mark.parametrize("case", DEEP)
def test_deep_and_long_sources(case: str, caplog: pytest.LogCaptureFixture) -> None:
    """Compiled or not: the server starts, and one short line says why it is not used."""
    with caplog.at_level(logging.WARNING):
        template = ChatTemplate(
            DEEP[case], bos_token=None, eos_token=None, special_tokens=(), limits=LIMITS
        )
    try:
        template.render(MESSAGES)
    except InvalidRequest as error:
        assert len(str(error)) < 2 * MAX_SAID  # noqa: PT017 - rendering is right too
    assert template.is_fallback == bool(caplog.records)
    assert all(len(record.getMessage()) < 2 * MAX_SAID for record in caplog.records)


NAMED = {
    "{{ 'a b c' | wordwrap(width=3, wrapstring='-', break_long_words=false) }}": "a b-c",
    "{{ 'a\nb' | indent(width=2, first=true) }}": "  a\n  b",
    "{{ [1, 2] | join(d=', ') }}": "1, 2",
    "{{ 'aa' | replace(old='a', new='b', count=1) }}": "ba",
    "{{ 'x' | center(width=3) }}": " x ",
    "{{ 2.567 | round(method='floor', precision=1) }}": "2.5",
    "{{ '%(a)s' | format(a=1) }}": "1",
    "{{ [{'a': 2}] | sum(attribute='a', start=1) }}": "3",
    "{{ [{'a': 2}] | map(attribute='b', default='c') | list }}": "['c']",
    "{{ 'abcdef' | truncate(length=3, end='', leeway=0) }}": "abc",
    "{{ [1, 2, 3] | batch(linecount=2, fill_with=0) | list }}": "[[1, 2], [3, 0]]",
    "{{ {'a': 1} | tojson(indent=0) }}": '{\n"a": 1\n}',
    "{{ ' x ' | trim(chars=' ') }}": "x",
    "{{ '7' | int(base=8, default=1) }}": "7",
    "{{ [{'a': 1}] | selectattr('a', 'equalto', 1) | list | length }}": "1",
}


@pytest.mark.parametrize("source", NAMED)
def test_arguments_by_name(source: str) -> None:
    assert render(source) == NAMED[source]


def test_what_a_template_says_is_cut() -> None:
    with pytest.raises(InvalidRequest, match=r"refused the messages: x+…$") as refused:
        render("{{ raise_exception('x' * 1000000) }}")
    assert len(str(refused.value)) < 2 * MAX_SAID
    with pytest.raises(InvalidRequest, match="failed on these messages") as failed:
        render("{{ {}['x' * 1000000].y }}")
    assert len(str(failed.value)) < 2 * MAX_SAID


def test_doubtful_sources_warn_nobody() -> None:
    """Python's compiler has opinions on what a template is compiled to."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            render("{% if false %}{{ 1[0] }}{{ 1(2) }}{{ 'a' is sameas 'a' }}{% endif %}a") == "a"
        )
