"""The C++ module is built, imports, and tells the CPU's instruction sets."""

from octavo import _native


def test_the_scalar_form_comes_first():
    features = _native.cpu_features()
    assert features[0] == "scalar"
    assert len(set(features)) == len(features)
