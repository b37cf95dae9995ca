"""The log: one line a record, levels by --verbose, plain without a terminal."""

import io
import logging

import pytest

from octavo.log import clip, setup_logging

pytestmark = pytest.mark.usefixtures("restored_logging")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_one_line_a_record_whatever_it_holds():
    out = io.StringIO()
    setup_logging(stream=out)
    logging.getLogger("octavo.x").info("a\nforged line\r%s", "b\n")
    assert out.getvalue().count("\n") == 1
    assert "INFO octavo.x: a\\nforged line\\rb\\n" in out.getvalue()


@pytest.mark.parametrize(("verbose", "shown"), [(False, False), (True, True)])
def test_debug_and_tracebacks_only_when_verbose(verbose, shown):
    out = io.StringIO()
    setup_logging(verbose, out)
    logging.getLogger("octavo.x").debug("quiet")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("octavo.x").exception("failed")
    assert ("quiet" in out.getvalue()) is shown
    assert ("Traceback" in out.getvalue()) is shown
    assert "failed (ValueError: why)" in out.getvalue()


def test_others_are_heard_from_warning_up():
    out = io.StringIO()
    setup_logging(True, out)
    logging.getLogger("httpx").info("chatter")
    logging.getLogger("httpx").warning("trouble")
    assert "chatter" not in out.getvalue()
    assert "trouble" in out.getvalue()


def test_a_second_setup_replaces_the_first():
    first, second = io.StringIO(), io.StringIO()
    setup_logging(stream=first)
    setup_logging(stream=second)
    logging.getLogger("octavo").warning("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_colour_only_on_a_terminal():
    plain, terminal = io.StringIO(), Terminal()
    for out in (plain, terminal):
        setup_logging(stream=out)
        logging.getLogger("octavo").warning("x")
    assert "\033" not in plain.getvalue()
    assert "\033[33mWARNING" in terminal.getvalue()


def test_clip():
    assert clip("abc", 3) == "abc"
    assert clip("abcdef", 3) == "abc... (3 more)"
