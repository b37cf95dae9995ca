"""How a command ends: exit codes and what people read on stderr."""

import logging
import os
import sys
from collections.abc import Callable

from octavo.cli.terminal import escaped
from octavo.config import Shown
from octavo.errors import ConfigError, OctavoError, UsageError

log = logging.getLogger(__name__)


def exit_code_of(
    work: Callable[[], int],
    prog: str,
    usage: str,
    who: str = "server",
    *,
    has_verbose: bool = False,
) -> int:
    """Run `work` and turn how it ends into an exit code.

    Help or version: stdout, 0. Wrong usage: usage and reason on stderr, 2. Any other failure: the
    one line `server: fatal: <reason>` on stderr, 1; --verbose, where the command has it, adds the
    traceback to the log.
    """
    try:
        return work()
    except Shown as shown:
        sys.stdout.write(shown.text)
        return 0
    except UsageError as error:
        print(f"{usage}\n{prog}: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except ConfigError as error:
        return _fatal(who, one_line(error), error.exit_code)
    except OctavoError as error:
        return _fatal(who, one_line(error), 1)
    except KeyboardInterrupt:
        return 130  # what a shell reports for SIGINT
    except BrokenPipeError:
        # Whoever read stdout has gone; Python must not find that out again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # what a shell reports for SIGPIPE
    except Exception as error:
        log.debug("the failure in full", exc_info=True)
        more = " (--verbose shows more)" if has_verbose else ""
        return _fatal(who, f"{type(error).__name__}: {one_line(error)}{more}", 1)


def _fatal(who: str, reason: str, exit_code: int) -> int:
    print(f"{who}: fatal: {reason}", file=sys.stderr)
    return exit_code


def one_line(error: BaseException) -> str:
    """The error's sentence without line breaks; what a terminal would act on is spelled."""
    return escaped(" ".join(str(error).split()))
