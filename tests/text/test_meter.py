"""What the account of a template takes a value's size to be."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from octavo.text.meter import POINTER_BYTES, Limits, Meter, size_of

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.binary(max_size=9)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


def slow_twin(value: Any) -> int:
    """Item by item, each by its own size."""
    if isinstance(value, dict):
        return POINTER_BYTES + sum(
            POINTER_BYTES + slow_twin(item) for item in (*value.keys(), *value.values())
        )
    if isinstance(value, list | tuple):
        return POINTER_BYTES + sum(POINTER_BYTES + slow_twin(item) for item in value)
    return size_of(value)


@given(VALUES)
def test_measure_equals_its_slow_twin(value: Any) -> None:
    assert Meter(Limits()).measure(value) == slow_twin(value)


@given(VALUES)
def test_what_is_there_twice_counts_twice(value: Any) -> None:
    assert Meter(Limits()).measure([value, value]) == 3 * POINTER_BYTES + 2 * slow_twin(value)
