"""Answers of a model that is loaded in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.cli.ask import Piece
from octavo.serving.llm import LLM

if TYPE_CHECKING:
    from octavo.cli.ask import Load
    from octavo.serving.background import Items
    from octavo.serving.results import Delta


class LocalAnswer:
    """Implements `ask.Answer`."""

    def __init__(self, deltas: Items[Delta]) -> None:
        self._deltas = deltas

    def __iter__(self) -> Iterator[Piece]:
        for delta in self._deltas:
            yield Piece(delta.text, delta.finish_reason)

    def close(self) -> None:
        self._deltas.close()


class LocalSource:
    """Implements `ask.Source`."""

    where = "in this process"

    def __init__(self, values: Mapping[str, Any], load: Load | None) -> None:
        """Load the model. Raises ConfigError."""
        self._llm = LLM(**values) if load is None else LLM(**values, load=load)
        self.name = self._llm.model

    def chat(self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> LocalAnswer:
        return LocalAnswer(self._llm.stream_chat(messages, params))

    def complete(self, prompt: str, params: Mapping[str, Any]) -> LocalAnswer:
        return LocalAnswer(self._llm.stream(prompt, params))

    def __enter__(self) -> LocalSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._llm.close()
