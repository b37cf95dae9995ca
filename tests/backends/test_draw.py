"""The hash of the draws: published vectors, our own contract, and that it looks uniform."""

import pytest

from octavo.backends.draw import mix, uniform

GOLDEN = 0x9E3779B97F4A7C15


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, 0xE220A8397B1DCDAF), (2, 0x6E789E6AA1B965F4), (3, 0x06C45D188009454F)],
)
def test_mix_is_splitmix64_from_seed_0(n, expected):
    assert mix(n * GOLDEN % 2**64) == expected


@pytest.mark.parametrize(
    ("seed", "position", "bits"),
    [
        (0, 0, 5876733520225071),
        (0, 1, 6315957190297641),
        (1, 0, 3316356330981164),
        (2**64 - 1, 2**20, 5800457451829967),
    ],
)
def test_the_numbers_that_every_backend_draws(seed, position, bits):
    assert uniform(seed, position) == bits / 2**53


def test_uniform_over_seeds_and_over_positions():
    for numbers in (
        [uniform(seed, 0) for seed in range(20_000)],
        [uniform(7, position) for position in range(20_000)],
        [uniform(seed, 1) * 16 % 1 for seed in range(20_000)],
    ):
        assert all(0 <= u < 1 for u in numbers)
        tenths = [0] * 10
        for u in numbers:
            tenths[int(u * 10)] += 1
        assert all(abs(count - 2000) < 5 * 43 for count in tenths)  # sd of a tenth is 42.4


def test_neighbouring_seeds_are_not_shifts_of_each_other():
    streams = [{uniform(seed, position) for position in range(200)} for seed in (0, 1, GOLDEN)]
    assert not streams[0] & streams[1]
    assert not streams[0] & streams[2]
