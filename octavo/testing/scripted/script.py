"""The script of the double: read from JSON, checked, turned into tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from octavo.errors import UsageError

Count = Annotated[int, msgspec.Meta(ge=0)]


class Piece(msgspec.Struct, forbid_unknown_fields=True):
    """One token that is not plain text: raw bytes or a special token; exactly one of the two."""

    hex: str | None = None
    special: str | None = None

    def token(self) -> tuple[bytes, bool]:
        """(bytes, is it special?)"""
        if (self.hex is None) == (self.special is None):
            raise UsageError("--script: a piece is text, {'hex': ...} or {'special': ...}")
        if self.special is not None:
            return self.special.encode(), True
        assert self.hex is not None
        try:
            return bytes.fromhex(self.hex), False
        except ValueError as error:
            raise UsageError(f"--script: {self.hex!r} is not hexadecimal") from error


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    """What the double says to one request."""

    pieces: list[str | Piece]
    when: str | None = None
    end: bool = True

    def tokens(self) -> list[tuple[bytes, bool]]:
        """(bytes, is it special?) of each piece."""
        return [
            (piece.encode(), False) if isinstance(piece, str) else piece.token()
            for piece in self.pieces
        ]


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """See the package's docstring."""

    replies: list[Reply]
    chat_template: str | None = None
    max_model_len: Annotated[int, msgspec.Meta(ge=1)] = 4096
    step_delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    fail_at_step: Count | None = None
    die_at_step: Count | None = None

    @classmethod
    def read(cls, path: Path) -> Script:
        """Raises UsageError for a file that is no script."""
        try:
            script = msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise UsageError(f"--script: cannot read {path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise UsageError(f"--script: {path} is no script: {error}") from error
        if not script.replies:
            raise UsageError("--script: `replies` is empty")
        return script
