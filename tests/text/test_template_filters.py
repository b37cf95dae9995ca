"""Jinja2's filters with named arguments: what they write here is what they write in Jinja2."""

import inspect

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.text.meter import Limits
from octavo.text.sandbox import BoundedEnvironment

PLAIN = ImmutableSandboxedEnvironment()
ITEMS = "[{'a': 'x', 'n': 2}, {'a': 'X', 'n': 1}, {'n': 3}]"
NAMED = {
    "attr": "'x'|attr(name='y')",
    "batch": "[1, 2, 3]|batch(2, fill_with=0)|list",
    "center": "'x'|center(width=9)",
    "d": "none|d(default_value=1, boolean=true)",
    "default": "''|default(default_value='x', boolean=true)",
    "dictsort": "{'b': 1, 'A': 2}|dictsort(by='value', case_sensitive=true, reverse=true)",
    "filesizeformat": "2048|filesizeformat(binary=true)",
    "float": "'x'|float(default=2.5)",
    "format": "'%(a)s'|format(a=1)",
    "groupby": ITEMS + "|groupby(attribute='a', default='z', case_sensitive=true)|list",
    "indent": "'a\n\nb'|indent(width=2, first=true, blank=true)",
    "int": "'z'|int(default=7, base=16)",
    "join": ITEMS + "|join(d=', ', attribute='n')",
    "map": ITEMS + "|map(attribute='a', default='none')|list",
    "max": ITEMS + "|max(attribute='n', case_sensitive=true)",
    "min": ITEMS + "|min(attribute='n', case_sensitive=true)",
    "replace": "'aaa'|replace(old='a', new='b', count=2)",
    "round": "2.345|round(precision=1, method='floor')",
    "slice": "[1, 2, 3]|slice(2, fill_with=0)|list",
    "sort": "['b', 'A', 'c']|sort(reverse=true, case_sensitive=true, attribute=none)",
    "sum": ITEMS + "|sum(attribute='n', start=4)",
    "tojson": "[1]|tojson(indent=1)",
    "trim": "'xax'|trim(chars='x')",
    "truncate": "('ab ' * 20)|truncate(length=9, killwords=true, end='!', leeway=0)",
    "unique": "['b', 'B', 'b']|unique(case_sensitive=true, attribute=none)|list",
    "urlize": "'http://a.bc/defghi'|urlize(trim_url_limit=9, nofollow=true, target='t', rel='r')",
    "wordwrap": "'abcdef gh'|wordwrap(width=3, break_long_words=false, wrapstring='/')",
    "xmlattr": "{'a': 1}|xmlattr(autospace=false)",
}


def test_every_filter_that_takes_names() -> None:
    """A new version of Jinja2 may bring others."""
    takes = {
        name
        for name, function in PLAIN.filters.items()
        if any(
            p.default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
            for p in inspect.signature(inspect.unwrap(function)).parameters.values()
        )
    }
    assert takes <= NAMED.keys()


@pytest.mark.parametrize("name", NAMED)
def test_named_arguments(name: str) -> None:
    source = "{{ " + NAMED[name] + " }}"
    environment = BoundedEnvironment()
    found = environment.render_bounded(environment.compile_bounded(source), {}, Limits(), 0)
    assert found == PLAIN.from_string(source).render()
