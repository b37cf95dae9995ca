"""What holds for all tests."""

from hypothesis import settings

# No test is timed: a machine that is busy with something else would fail it.
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")
