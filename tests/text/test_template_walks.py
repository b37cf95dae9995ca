"""Filters and methods that walk a long text are refused by the account, before they run: never by
the clock, which is looked at only between them.
"""

import pytest

from octavo.errors import InvalidRequest
from octavo.text.template import ChatTemplate

LONG = "{% set a = 'a' * 8000000 %}"
SHARED = (
    "{% set ns = namespace(a=[1], b=[1], t=(1, 2)) %}{% for i in range(60) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% set ns.t = (ns.t, ns.t) %}"
    "{% endfor %}"
)
WALKS = {
    "batch": LONG + "{{ a | batch(2) | list | length }}",
    "long batch": "{{ ('ab' * 30000000) | batch(2) | list | length }}",
    "list": LONG + "{{ a | list | length }}",
    "wide list": "{{ ('é' * 400000) | list | length }}",
    "slice": LONG + "{{ a | slice(3) | list | length }}",
    "map": LONG + "{{ a | map('upper') | list | length }}",
    "attributes": LONG + "{{ a | map(attribute='x') | list | length }}",
    "select": LONG + "{{ a | select | list | length }}",
    "reject": LONG + "{{ a | reject | list | length }}",
    "selectattr": LONG + "{{ a | selectattr('x') | list | length }}",
    "rejectattr": LONG + "{{ a | rejectattr('x') | list | length }}",
    "unique": LONG + "{{ a | unique | list | length }}",
    "groupby": LONG + "{{ a | groupby(0) | length }}",
    "sort": LONG + "{{ a | sort | length }}",
    "min": LONG + "{{ a | min }}",
    "join": LONG + "{{ (a | join('-')) | length }}",
    "split": LONG + "{{ a.split('a') | length }}",
    "long split": "{{ ('a' * 60000000).split('a') | length }}",
    "split by name": LONG + "{{ a.split(sep='a') | length }}",
    "split of Markup": LONG + "{{ (a | safe).split('a') | length }}",
    "split at spaces": "{{ ('a ' * 4000000).split() | length }}",
    "split at wide spaces": "{{ ('a\u3000' * 1000000).split() | length }}",
    "rsplit": LONG + "{{ a.rsplit('a') | length }}",
    "splitlines": "{{ ('a\n' * 4000000).splitlines() | length }}",
    "split bytes": LONG + "{{ a.encode().split('a'.encode()) | length }}",
    "rfind": LONG + "{{ a.rfind('b' + a[:4000000]) }}",
    "strip": LONG + "{{ a.strip('b' * 4000000 + 'a') | length }}",
    "trim": LONG + "{{ a | trim('b' * 4000000 + 'a') | length }}",
    "wordwrap": "{{ ('a ' * 4000000) | wordwrap | length }}",
    "wordcount": "{{ ('a ' * 4000000) | wordcount }}",
    "urlize": "{{ ('a ' * 1000000) | urlize | length }}",
    "pprint": "{{ ('a ' * 1000000) | pprint | length }}",
    "title": "{{ ('a ' * 1000000) | title | length }}",
    "striptags": "{{ ('<>' * 1000000) | striptags | length }}",
    "striptags method": "{{ (('<>' * 1000000) | safe).striptags() | length }}",
    "percent": "{{ '%(' * 4000000 % 1 }}",
    "punycode": "{{ ('é' * 1000000).encode('punycode') | length }}",
    "names of letters": "{{ ('é' * 1000000).encode('ascii', 'namereplace') | length }}",
    "number": "{{ ('f' * 1000000) | int(base=16) // 3 > 1 }}",
    "fromkeys": LONG + "{{ {}.fromkeys(a) | length }}",
    "isdisjoint": LONG + "{{ {}.keys().isdisjoint(a) }}",
    "spread": LONG + "{{ cycler(*a) }}",
    "spread to a filter": LONG + "{{ '' | trim(*a) }}",
    "joined iterator": LONG + "{{ ([{'a': a}] * 1000) | map(attribute='a') | join | length }}",
    "joined by a method": LONG + "{{ ''.join(([{'a': a}] * 1000) | map(attribute='a')) | length }}",
    "sorted iterator": SHARED + "{{ [ns.a, ns.b] | reverse | sort | length }}",
    "found in iterator": SHARED + "{{ ns.a in ([ns.b] | reverse) }}",
    "tested in iterator": SHARED + "{{ ns.a is in([ns.b] | reverse) }}",
    "centred shared": SHARED + "{{ ns.a | center }}",
    "replaced by shared": SHARED + "{{ 'x' | replace('x', ns.a) }}",
    "key of a literal": SHARED + "{{ {ns.t: 1} }}",
    "key looked up": SHARED + "{{ {}[ns.t] }}",
    "key of dict": SHARED + "{{ dict([(ns.t, 1)]) }}",
    "key of namespace": SHARED + "{{ namespace([(ns.t, 1)]) }}",
    "indent of JSON": "{% set ns = namespace(l=range(9999) | list) %}{% for i in range(300) %}"
    "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson(indent=64) | length }}",
}


@pytest.mark.parametrize("case", WALKS)
def test_a_walk_is_refused_by_the_account(case: str) -> None:
    template = ChatTemplate(WALKS[case], bos_token=None, eos_token=None, special_tokens=())
    assert not template.is_fallback
    with pytest.raises(InvalidRequest, match="it is refused") as caught:
        template.render([{"role": "user", "content": "x"}])
    assert "seconds" not in str(caught.value)
    assert "too deeply" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'ab' | list }}", "['a', 'b']"),
        ("{{ [3, 1, 2] | reverse | list }}", "[2, 1, 3]"),
        ("{{ ['a', 'b'] | map('upper') | join(',') }}", "A,B"),
        ("{{ ','.join(['a', 'b'] | map('upper')) }}", "A,B"),
        ("{{ [1, 2, 3] | batch(2) | list }}", "[[1, 2], [3]]"),
        ("{{ 2 in ([1, 2] | reverse) }}", "True"),
        ("{{ 2 is in([1, 2] | reverse) }}", "True"),
        ("{{ ['b', 'a'] | map('upper') | sort | first }}", "A"),
        ("{% for x in [1, 2] | map('string') %}{{ loop.last }}{% endfor %}", "FalseTrue"),
        ("{{ 'a b c'.split(maxsplit=1) }}", "['a', 'b c']"),
        ("{{ 'é'.encode('UTF-8') | length }}", "2"),
        ("{{ [1, [2]] | tojson(indent=1) }}", "[\n 1,\n [\n  2\n ]\n]"),
        ("{{ namespace(**{'a': 1}).a }}{{ '%s-%s' % (1, 2) }}", "11-2"),
    ],
)
def test_what_they_give_is_jinja2s(source: str, text: str) -> None:
    template = ChatTemplate(source, bos_token=None, eos_token=None, special_tokens=())
    assert template.render([{"role": "user", "content": "x"}]).text == text


def test_long_messages_are_still_read() -> None:
    """The limits grow with the input."""
    source = (
        "{% set c = messages[0].content %}{{ c | trim }}{{ c.split('</think>')[-1] | length }}"
        "{{ '<x>' in c }}{{ c.strip('\n').startswith('é') }}{{ (c | tojson) | length > 1 }}"
    )
    template = ChatTemplate(source, bos_token=None, eos_token=None, special_tokens=())
    text = template.render([{"role": "user", "content": "é and more " * 200_000}]).text
    assert text.endswith("FalseTrueTrue")
