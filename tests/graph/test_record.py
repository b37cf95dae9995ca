"""A model function is recorded once: what the program then holds, and mistakes told at once."""

import pytest

from octavo.errors import ConfigError
from octavo.graph import OPS, Graph, RopeConfig
from octavo.graph.program import CacheNeed

SHAPES = {
    "embed": (10, 8),
    "head": (10, 8),
    "norm": (8,),
    "q_proj": (8, 8),
    "k_proj": (4, 8),
    "wide": (6, 8),
    "b.wide": (7, 8),
}
ROPE = RopeConfig(head_dim=4, rotary_dim=4, theta=100.0)


def small(layers=1, tied=False):
    g = Graph(SHAPES)
    x = g.embed("embed")
    for layer in range(layers):
        h = g.rms_norm(x, f"{layer}.norm", 1e-5)
        q, k, v = g.linears(h, f"{layer}.", ("q_proj", "k_proj", "k_proj"), bias=True)
        a = g.attention(g.rope(q, ROPE), g.rope(k, ROPE), v, layer=layer, scale=0.5)
        x = g.add(x, a)
    g.logits(x, head="head", tied=tied)
    return g.program()


def test_the_program_holds_operations_weights_and_caches():
    program = small(layers=2)
    assert [op.name for op in program.ops][:5] == [
        "embed",
        "rms_norm",
        "linear",
        "linear",
        "linear",
    ]
    assert [op.name for op in program.ops][-2:] == ["gather", "logits"]
    assert program.cache == (CacheNeed("full", (0, 1), kv_heads=1, head_dim=4),)
    assert program.weights["1.k_proj.weight"] == (4, 8)
    assert program.weights["1.k_proj.bias"] == (4,)
    assert program.outputs["logits"].shape == ("R", 10)
    assert list(program.inputs) == ["token_ids", "positions", "logits_rows"]


def test_a_tied_head_is_the_embedding():
    assert "head.weight" not in small(tied=True).weights
    assert small(tied=True).ops[-1].weights == ("embed.weight",)


def test_every_value_is_made_once_and_before_it_is_read():
    program = small(layers=3)
    known = {value.id for value in program.inputs.values()}
    for op in program.ops:
        assert {value.id for value in op.inputs} <= known
        assert op.output.id not in known
        known.add(op.output.id)


def test_the_dump_is_readable():
    text = str(small())
    assert "input token_ids %0[T]" in text
    assert "cache 0: full, 1 layers of 2 x [1, 4] a token" in text
    assert "%5[T, 8] = linear(%4, 0.q_proj.weight, 0.q_proj.bias, shard=out)" in text
    assert text.splitlines()[-1].startswith("output logits %")


def test_a_program_cannot_be_changed():
    program = small()
    with pytest.raises(TypeError):
        program.weights["more"] = (1,)
    with pytest.raises(AttributeError):
        program.ops = ()


def test_only_attention_needs_more_than_its_meaning():
    assert [name for name, spec in OPS.items() if spec.meaning is None] == ["attention"]


def test_the_longest_end_of_a_name_gives_the_shape():
    g = Graph(SHAPES)
    x = g.embed("model.embed")
    assert g.linear(x, "a.wide").shape == ("T", 6)
    assert g.linear(x, "a.b.wide").shape == ("T", 7)


def attend(g, x, **fields):
    q, k = g.rope(g.linear(x, "q_proj"), ROPE), g.rope(g.linear(x, "k_proj"), ROPE)
    return g.attention(q, k, g.linear(x, "k_proj"), **{"layer": 0, "scale": 1.0} | fields)


MISTAKES = {
    "widths that differ": (
        lambda g, x: g.linear(g.linear(x, "a.wide"), "a.b.wide"),
        r"linear a\.b\.wide: \[T, 6\] times \[7, 8\]: the last sizes must be equal",
    ),
    "norm of another width": (
        lambda g, x: g.rms_norm(g.linear(x, "a.wide"), "norm", 1e-5),
        r"rms_norm norm: \[T, 6\] normed by \[8\]",
    ),
    "a negative eps": (lambda g, x: g.rms_norm(x, "norm", -1.0), "eps is -1.0"),
    "sums of two shapes": (
        lambda g, x: g.add(x, g.linear(x, "a.wide")),
        r"add: \[T, 8\] and \[T, 6\] must be equal",
    ),
    "heads that do not fit": (
        lambda g, x: g.rope(g.linear(x, "a.wide"), ROPE),
        r"rope: \[T, 6\] cannot be cut into heads of 4",
    ),
    "an odd rope": (
        lambda g, x: g.rope(x, RopeConfig(4, 3, 1e4)),
        "rotary_dim is 3; it must be even and at most 4",
    ),
    "too few rope factors": (
        lambda g, x: g.rope(x, RopeConfig(4, 4, 1e4, (1.0,))),
        "1 rope factors; there must be 2",
    ),
    "a negative window": (lambda g, x: attend(g, x, window=-1), "attention: window is -1"),
    "attention without heads": (
        lambda g, x: g.attention(x, x, x, layer=0, scale=1.0),
        r"q \[T, 8\] and k \[T, 8\] must be \[T, heads, head_dim\]",
    ),
    "values of another width": (
        lambda g, x: g.attention(
            g.rope(x, ROPE), g.rope(x, ROPE), g.linear(x, "k_proj"), layer=0, scale=1.0
        ),
        r"v is \[T, 4\]; it must be \[T, 8\]",
    ),
    "two writers of one layer": (
        lambda g, x: [attend(g, x), attend(g, x)],
        "layer 0 already writes the cache",
    ),
    "a weight of unknown shape": (
        lambda g, x: g.linear(x, "a.gate_proj"),
        "linear a.gate_proj: the family declares no shape for this weight",
    ),
    "no output": (lambda g, x: g.program(), "the program has no output"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_when_they_are_made(case):
    mistake, message = MISTAKES[case]
    g = Graph(SHAPES)
    with pytest.raises(ConfigError, match=message):
        mistake(g, g.embed("embed"))


def test_a_tied_head_needs_an_embedding():
    g = Graph({"wide": (6, 8)})
    with pytest.raises(ConfigError, match="tied head"):
        g.logits(g.token_ids, head="wide", tied=True)
