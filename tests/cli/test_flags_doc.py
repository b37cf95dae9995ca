"""docs/flags.md is what the fields say now."""

from pathlib import Path

from octavo.cli.flags_doc import flags_document
from octavo.config.config import GROUPS
from octavo.config.fields import flags_of

WRITTEN = Path(__file__).resolve().parents[2] / "docs" / "flags.md"


def test_the_file_is_current():
    assert WRITTEN.read_text("utf-8") == flags_document(), (
        "run: python -m octavo.cli.flags_doc > docs/flags.md"
    )


def test_every_flag_and_variable_is_in_it():
    text = flags_document()
    for group in GROUPS.values():
        for _, flag in flags_of(group):
            names = (*flag.names, *flag.off_names, *([flag.env] if flag.env else []))
            assert all(f"`{name}" in text for name in names)
