"""Rope scaling, as divisors of the frequencies, from config.json and from GGUF metadata."""

import math

import numpy as np

from octavo.models.fields import Fields

MAX_THETA = 1e12
_MAX_FACTOR = 1e6
_NONE = ("default", "none", "")


def rope_settings(hf: Fields, rotary_dim: int) -> tuple[float, tuple[float, ...]]:
    """(theta, factors) of a config.json.

    Old files write `rope_theta` and `rope_scaling`, new ones one object `rope_parameters`.
    Scaling kinds that are not built are refused by name.
    """
    new = hf.has("rope_parameters")
    scaling = hf.mapping("rope_parameters" if new else "rope_scaling")
    theta_of = scaling if scaling.has("rope_theta") else hf
    theta = theta_of.number("rope_theta", 10000.0, low=1.0, high=MAX_THETA)
    return theta, rope_factors(scaling, theta, rotary_dim, kind=None if new else "default")


def rope_factors(
    scaling: Fields, theta: float, rotary_dim: int, *, kind: str | None = "default"
) -> tuple[float, ...]:
    """The factors that one object of scaling settings means.

    kind: taken when it names none; None: it must.
    """
    key = "rope_type" if scaling.has("rope_type") else "type"
    kind = scaling.text(key, kind)
    if kind in _NONE:
        return ()
    if kind == "linear":
        return (_factor(scaling, "factor"),) * (rotary_dim // 2)
    if kind == "llama3":
        return _llama3(scaling, theta, rotary_dim)
    raise scaling.wrong(key, "default, linear or llama3: other rope scalings are not built")


def gguf_linear_factor(gguf: Fields) -> float:
    """The divisor of all frequencies by a GGUF file's keys; 1 when it scales nothing."""
    if gguf.has("rope.scale_linear"):  # the spelling of files of 2023
        return _factor(gguf, "rope.scale_linear")
    kind = gguf.text("rope.scaling.type", "none")
    if kind in _NONE:
        return 1.0
    if kind != "linear":
        raise gguf.wrong("rope.scaling.type", "none or linear: other rope scalings are not built")
    return _factor(gguf, "rope.scaling.factor")


def _factor(fields: Fields, key: str) -> float:
    return fields.number(key, low=1 / _MAX_FACTOR, high=_MAX_FACTOR)


def _llama3(scaling: Fields, theta: float, rotary_dim: int) -> tuple[float, ...]:
    """Llama 3.1: long waves are stretched by `factor`, short ones kept, those between blended."""
    factor = _factor(scaling, "factor")
    low = scaling.number("low_freq_factor", low=1e-3, high=1e3)
    high = scaling.number("high_freq_factor", low=1e-3, high=1e3)
    if high <= low:
        raise scaling.wrong("high_freq_factor", f"above low_freq_factor, {low:g}")
    trained = scaling.integer("original_max_position_embeddings", high=2**31 - 1)
    wavelengths = 2 * math.pi * theta ** (np.arange(0, rotary_dim, 2) / rotary_dim)
    kept = np.clip((trained / wavelengths - low) / (high - low), 0.0, 1.0)
    return tuple((1 / ((1 - kept) / factor + kept)).tolist())
