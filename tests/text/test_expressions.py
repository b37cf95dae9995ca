"""What is repeated to try a stranger's expressions out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.expressions import COMMON, repeated


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("q+w", {"q", "w", "qw"}),
        ("(?:q[rs])+Z", {"qr", "s", "qrZ"}),
        (r"\x{1F600}\x41\u0436", {"😀", "A", "ж", "😀Aж"}),
        (r"\p{Thai}+\p{^Ll}\P{Nd}", {"ก"}),
        (r"(?i:'s|'ll)", {"'s", "'ll"}),
        (r"\d{1,3}\s\w\.", {"1 a.", "."}),
        (r"[^xy]z", {"x", "y", "xz"}),
        (r"(?<=k)(?!l)[[:alpha:]]", {"k", "l"}),
        (r"\p{NoSuchThing}\x{FFFFFF}\x{D800}", set()),
    ],
)
def test_parts(expression: str, wanted: set[str]) -> None:
    assert wanted <= set(repeated([expression]))


@given(st.lists(st.text(st.sampled_from("\\pP{}[]^()?:<>=!|*+xu0aZq1&-"), max_size=30), max_size=3))
def test_any_expression(expressions: list[str]) -> None:
    """Nothing is empty or half a character, and the common ones are always tried."""
    found = repeated(expressions)
    assert len(set(found)) == len(found)
    assert set(COMMON) <= set(found)
    for part in found:
        assert part.encode()
