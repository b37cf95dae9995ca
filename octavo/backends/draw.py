"""The one uniform number of a draw: a hash of (seed, position), the same on every backend."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014): 64 bits to 64 bits."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits.

    h = mix(mix(seed + g) + (position + 1) * g) mod 2**64, g = 0x9E3779B97F4A7C15; the number is
    (h >> 11) / 2**53. So it does not depend on what else was drawn before or beside it.
    """
    stream = mix((seed + _GOLDEN) & _MASK)
    return (mix((stream + (position + 1) * _GOLDEN) & _MASK) >> 11) * 2.0**-53
