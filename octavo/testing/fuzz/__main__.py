"""Fuzzes one target for some minutes with atheris; `scripts/fuzz` builds and calls this.

An input that fails is written to a file and ends the run; `--replay FILE` shows it again.
"""

import argparse
import faulthandler
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any, Final

from octavo.testing.fuzz.bounds import Account, TooCostly, peak_bytes

TARGETS: Final = {
    "gguf": "gguf_files",
    "safetensors": "safetensors_files",
    "templates": "chat_templates",
    "vocabularies": "vocabularies",
}
MAX_INPUT_BYTES = 4096
SEEDS = 100
INSTRUMENTED = ("octavo.weights", "octavo.text", "octavo.models")


class Campaign:
    """Inputs of one target, and what became of them."""

    def __init__(self, target: Any, end_s: float) -> None:
        self._run: Callable[[bytes], str] = target.run
        self._account = Account(target.CPU_S, target.GROWTH_BYTES)
        self._end_s = end_s
        self._outcomes: Counter[str] = Counter()

    def one(self, data: bytes) -> None:
        """Raises what the input brings to light."""
        if time.monotonic() > self._end_s:
            self.tell()
            os._exit(0)  # libFuzzer would call an orderly end a crash
        try:
            with self._account.one_input():
                outcome = self._run(data)
        except TooCostly:  # the machine itself may have stood still: once is no proof
            with self._account.one_input():
                outcome = self._run(data)
        self._outcomes[outcome if len(self._outcomes) < 1000 else "others"] += 1

    def tell(self) -> None:
        count = self._outcomes.total()
        print(
            f"\nno failure in {count} inputs; slowest {self._account.slowest_s:.2f} s of CPU, "
            f"largest growth {self._account.largest_growth_bytes >> 20} MiB, "
            f"peak {peak_bytes() >> 20} MiB, {len(self._outcomes)} outcomes:"
        )
        for outcome, times in self._outcomes.most_common(12):
            print(f"{times:9}  {outcome}")
        sys.stdout.flush()


def _instrument(instrument: Callable[[Any], Any]) -> None:
    """Counts the coverage of Octavo's readers; that of all modules takes minutes to set up."""
    for function in [item for item in gc.get_objects() if isinstance(item, FunctionType)]:
        if (function.__module__ or "").startswith(INSTRUMENTED):
            instrument(function)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--replay", type=Path, help="run this input only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(), help="where failing inputs go")
    given = parser.parse_args()
    target = import_module(f"octavo.testing.fuzz.{TARGETS[given.target]}")
    if given.replay is not None:
        print(target.run(given.replay.read_bytes()))
        return
    import atheris

    faulthandler.enable()
    logging.disable()
    corpus = given.folder / f"{given.target}-corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number in range(SEEDS):  # libFuzzer would begin with a single byte
        random = Random(number)
        (corpus / f"seed-{number}").write_bytes(random.randbytes(random.randrange(20, 2000)))
    target.run(b"")  # imports what it needs, to be instrumented too
    _instrument(atheris.instrument_func)
    campaign = Campaign(target, time.monotonic() + 60 * given.minutes)
    options = [
        f"-max_len={MAX_INPUT_BYTES}",
        f"-seed={given.seed}",
        "-len_control=0",
        "-reduce_inputs=0",
        "-rss_limit_mb=3000",
        "-timeout=60",
        f"-artifact_prefix={given.folder}/{given.target}-",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *options], campaign.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
