"""Hostile chat templates end in a 400 that names the bound, quickly and in little memory."""

import pytest

from octavo.errors import InvalidRequest
from octavo.text.sandbox import BoundedEnvironment, LimitExceeded, Limits
from octavo.text.template import ChatTemplate

DOUBLING = (
    "{% set ns = namespace(s='xxxxxxxx') %}"
    "{% for i in range(60) %}{% set ns.s = BODY %}{% endfor %}"
)
SHARED = (
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
BOUNDED = {
    "range": "{% for i in range(999999999) %}x{% endfor %}",
    "nested loops": "{% for i in range(90000) %}{% for j in range(90000) %}{% set x = i * j %}"
    "{% endfor %}{% endfor %}",
    "loop filter": "{% for i in range(90000) %}{% for j in range(90000) if j < 0 %}{% endfor %}"
    "{% endfor %}",
    "static text": "{% for i in range(90000) %}" + "x" * 10_000 + "{% endfor %}",
    "repetition": "{{ 'x' * 2000000000 }}",
    "list repetition": "{{ [0] * 2000000000 }}",
    "power": "{{ 9 ** 99999999 }}",
    "squaring": "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}"
    "{% endfor %}",
    "center filter": "{{ ('x' * 1000000) | center(2000000000) }}",
    "center": "{{ 'x'.center(2000000000) }}",
    "ljust": "{{ 'x'.ljust(2000000000) }}",
    "zfill of bytes": "{{ 'x'.encode().zfill(2000000000) }}",
    "format method": "{{ '{:1000000000}'.format(1) }}",
    "format by getitem": "{{ 'x{:1000000000}'['format'](1) }}",
    "nested format": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "format fields": "{{ ('{0}' * 100000).format('x' * 100000) }}",
    "format map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent precision": "{{ '%.1000000000f' % 1 }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "mapped filter": "{{ ['x'] | map('center', 2000000000) | list }}",
    "tojson": "{{ [1] | tojson(indent=10**9) }}",
    "tojson shared": SHARED + "{{ ns.a | tojson }}",
    "printed shared": SHARED + "{{ ns.a }}",
    "string shared": SHARED + "{{ ns.a | string }}",
    "joined shared": SHARED + "{{ ns.a ~ '' }}",
    "compared shared": SHARED + "{% if ns.a == ns.b %}{% endif %}",
    "found shared": SHARED + "{% if ns.a in [ns.b] %}{% endif %}",
    "counted shared": SHARED + "{{ [ns.a].count(ns.b) }}",
    "changed shared": SHARED + "{% for i in [1, 2] %}{{ loop.changed(ns.a if i == 1 else ns.b) }}"
    "{% endfor %}",
    "printed namespace": SHARED + "{{ ns }}",
    "doubling +": DOUBLING.replace("BODY", "ns.s + ns.s"),
    "doubling ~": DOUBLING.replace("BODY", "ns.s ~ ns.s"),
    "doubling join": DOUBLING.replace("BODY", "[ns.s, ns.s] | join"),
    "doubling method join": DOUBLING.replace("BODY", "''.join([ns.s, ns.s])"),
    "doubling replace": DOUBLING.replace("BODY", "ns.s | replace('x', 'xx')"),
    "doubling method replace": DOUBLING.replace("BODY", "ns.s.replace('x', 'xx')"),
    "doubling format": DOUBLING.replace("BODY", "'{0}{0}'.format(ns.s)"),
    "doubling percent": DOUBLING.replace("BODY", "'%s%s' % (ns.s, ns.s)"),
    "doubling block": "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}"
    "{% set b %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = b %}{% endfor %}",
    "copies": "{% set ns = namespace(l=[]) %}{% set s = 'x' * 1000000 %}"
    "{% for i in range(90000) %}{% set ns.l = [ns.l, s[1:]] %}{% endfor %}",
    "list growth": DOUBLING.replace("BODY", "(ns.s | list) + (ns.s | list)"),
    "indent": "{{ ('x\n' * 100000) | indent(100000) }}",
    "batch": "{{ [1] | batch(1000000000, 'x') | list }}",
    "slice": "{{ [1] | slice(1000000000) | list }}",
    "sum": "{% set l = [0] * 10000 %}{{ ([l] * 10000) | sum(start=[]) | length }}",
    "round": "{{ 1 | round(99999999, 'ceil') }}",
    "expandtabs": "{{ ('\t' * 1000).expandtabs(1000000000) }}",
    "translate": "{{ 'xx'.translate({120: 'y' * 1000000}) }}",
    "to_bytes": "{{ (1).to_bytes(2000000000, 'big') }}",
    "recursive macro": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "branching macro": "{% macro m(n) %}{% if n < 90 %}{{ m(n + 1) }}{{ m(n + 1) }}{% endif %}"
    "{% endmacro %}{{ m(0) }}",
    "branching loop": "{% for x in [1, 2] recursive %}{% if loop.depth < 90 %}{{ loop([1, 2]) }}"
    "{% endif %}{% endfor %}",
    "output": "{% for i in range(90000) %}{{ messages[0].content }}{% endfor %}",
    "time format": "{{ strftime_now('%c' * 100000) }}",
}
FORBIDDEN = {
    "class": "{{ ''.__class__ }}",
    "class by item": "{{ ''['__class__'] }}",
    "class by attr": "{{ '' | attr('__class__') }}",
    "class by map": "{{ [''] | map(attribute='__class__') | list }}",
    "class by format": "{{ '{0.__class__}'.format('') }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "macro": "{% macro m() %}{% endmacro %}{{ m._func }}",
    "raise_exception": "{{ raise_exception.__globals__ }}",
    "clock": "{{ strftime_now._now }}",
    "append": "{{ messages.append(1) }}",
    "update": "{{ messages[0].update({'role': 'x'}) }}",
    "namespace": "{% set ns = namespace() %}{% set ns.__html__ = 1 %}",
    "namespace call": "{{ namespace(__html__=1) }}",
    "environment": "{{ self._TemplateReference__context }}",
    "formatter": "{{ 'x'.format._formatter }}",
    "lipsum": "{{ lipsum(n=1000000) }}",
}
MESSAGES = [{"role": "user", "content": "y" * 100_000}]
SMALL = Limits(steps=20_000, size_bytes=16 << 20, one_size_bytes=4 << 20)


def render(source: str, limits: Limits = SMALL) -> str:
    template = ChatTemplate(
        source, bos_token=None, eos_token=None, special_tokens=(), limits=limits
    )
    assert not template.is_fallback
    return template.render(MESSAGES).text


@pytest.mark.parametrize("case", BOUNDED)
def test_bounded(case: str) -> None:
    with pytest.raises(InvalidRequest, match="it is refused") as caught:
        render(BOUNDED[case])
    assert caught.value.param == "messages"


@pytest.mark.parametrize("case", FORBIDDEN)
def test_forbidden(case: str) -> None:
    """Refused, or (as in Jinja2, where it is only named) nothing."""
    try:
        text = render(FORBIDDEN[case])
    except InvalidRequest as error:
        text = str(error).removeprefix("the chat template failed on these messages")[:1]
    assert text in ("", ":", "[Undefined]")


@pytest.mark.parametrize("case", ["range", "repetition", "power", "doubling +"])
def test_bounded_by_default(case: str) -> None:
    with pytest.raises(InvalidRequest, match="it is refused"):
        render(BOUNDED[case], Limits())


def test_time_limit() -> None:
    environment = BoundedEnvironment()
    loop = "{% for i in range(1000) %}{% set x = i %}{% endfor %}"
    template = environment.compile_bounded(loop)
    assert environment.render_bounded(template, {}, Limits(), 0) == ""
    with pytest.raises(LimitExceeded, match="seconds"):
        environment.render_bounded(template, {}, Limits(time_s=-1.0), 0)


def test_long_inputs_are_within_bounds() -> None:
    """A megabyte in one message, and thousands of messages, as agents send them."""
    source = (
        "{% for m in messages %}{% set c = m.content.split('</think>')[-1].lstrip('\n') %}"
        "{{ '<|im_start|>' + m.role + '\n' + (c | trim) + '<|im_end|>\n' }}"
        "{% for p in messages[-1:] %}{% endfor %}{% endfor %}"
    )
    template = ChatTemplate(source, bos_token=None, eos_token=None, special_tokens=("<|im_end|>",))
    long = template.render([{"role": "user", "content": "é " * 1_000_000}]).text
    assert len(long) > 1_000_000
    many = template.render([{"role": "user", "content": f"line {i}"} for i in range(5000)]).text
    assert many.count("<|im_end|>") == 5000


def test_nothing_is_computed_while_compiling() -> None:
    sources = ["{{ 'x' * 2000000000 }}", "{{ 9 ** 99999999 }}", "{{ 'x' | center(2000000000) }}"]
    for source in sources:
        template = ChatTemplate(
            "{% if false %}" + source + "{% endif %}a",
            bos_token=None,
            eos_token=None,
            special_tokens=(),
        )
        assert template.render(MESSAGES).text == "a"
