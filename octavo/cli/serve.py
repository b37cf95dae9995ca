"""`octavo serve`: flags to configuration, configuration to the server."""

import gc
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from octavo.cli.report import exit_code_of
from octavo.config import DEFAULT_MODEL, Config, parse_args, usage

if TYPE_CHECKING:
    from octavo.serving.loading import Served

    Load = Callable[[Config], Served]

log = logging.getLogger(__name__)


def serve_command(
    argv: Sequence[str],
    load: "Load | None" = None,
    *,
    prog: str = "octavo serve",
    default_model: str = DEFAULT_MODEL,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Parse the flags, serve until the end, and return the exit code. Reports every failure.

    load: what makes the served model, for doubles; None: the real model that the flags name.
    """

    def work() -> int:
        config = parse_args(argv, prog=prog, default_model=default_model, environ=environ)
        return start(config, load)

    return exit_code_of(work, prog, usage(prog), has_verbose=True)


def start(config: Config, load: "Load | None" = None) -> int:
    """Set up the log, say in it what the configuration has to say, and serve."""
    from octavo.log import setup_logging

    # Read when NumPy loads its BLAS, which is later. Its idle threads otherwise spin for long
    # enough to starve the HTTP side, and each other, on a machine with few cores.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    setup_logging(config.logs.verbose)
    for line in config.notices:
        log.info("%s", line)
    for line in config.warnings:
        log.warning("%s", line)
    # Nearly all that loading makes stays: to look for garbage among it would only cost time. The
    # lifecycle collects again when it serves.
    gc.disable()
    try:
        # Here and not above, so that --help and a wrong flag need not wait for the HTTP side.
        from octavo.api.lifecycle import serve

        return serve(config) if load is None else serve(config, load)
    finally:
        gc.enable()
