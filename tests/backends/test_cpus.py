"""The default number of threads: what the system and the container leave us."""

import os

import pytest

from octavo.backends.cpus import usable_cpus


@pytest.fixture
def eight(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("quota", "count"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("1000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("0 100000\n", 1),
        ("100000 0\n", 8),
        ("nonsense", 8),
        ("", 8),
    ],
)
def test_a_containers_quota_counts(tmp_path, quota, count):
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert usable_cpus(file) == count


@pytest.mark.usefixtures("eight")
def test_without_a_container_the_affinity_counts(tmp_path):
    assert usable_cpus(tmp_path / "absent") == 8


def test_without_affinity_all_cpus_count(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cpus(tmp_path / "absent") == (os.cpu_count() or 1)
