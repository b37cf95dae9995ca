"""The tokenizer of the double: 256 byte tokens, one token for each distinct piece, and EOS."""

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.testing.scripted.script import Script
from octavo.text.tokenizer import RenderedPrompt

EOS = "<|eos|>"
NUM_BYTES = 256


class ScriptedTokenizer:
    """Implements `octavo.text.tokenizer.Tokenizer`. Text is encoded one token a byte."""

    bos_token: str | None = None
    bos_token_id: int | None = None
    eos_token: str | None = EOS

    def __init__(self, script: Script) -> None:
        tokens = dict.fromkeys(token for reply in script.replies for token in reply.tokens())
        tokens.pop((EOS.encode(), True), None)
        self._ids = {token: NUM_BYTES + i for i, token in enumerate(tokens)}
        self._bytes = [bytes([b]) for b in range(NUM_BYTES)] + [data for data, _ in tokens]
        self.eos_id = len(self._bytes)
        self.eos_token_id: int | None = self.eos_id
        self._ids[EOS.encode(), True] = self.eos_id
        self._bytes.append(EOS.encode())
        self.vocab_size = len(self._bytes)
        self.special_tokens: Mapping[str, int] = {
            data.decode(): token_id for (data, special), token_id in self._ids.items() if special
        }
        self.special_ids = frozenset(self.special_tokens.values())
        self.max_token_bytes = max(map(len, self._bytes))

    def piece_id(self, token: tuple[bytes, bool]) -> int:
        """Id of a piece of the script."""
        return self._ids[token]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode("utf-8", "surrogatepass"))

    def encode_rendered(
        self, prompt: RenderedPrompt, add_special_tokens: bool = False
    ) -> list[int]:
        return self.encode(prompt.text)

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]

    def token_str(self, token_id: int) -> str:
        return self._bytes[token_id].decode("utf-8", "replace")

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        kept = (i for i in token_ids if not (skip_special_tokens and i in self.special_ids))
        return b"".join(self._bytes[i] for i in kept).decode("utf-8", "replace")

    def info(self) -> dict[str, Any]:
        added = {
            str(token_id): {"content": text, "special": True, "lstrip": False, "rstrip": False}
            for text, token_id in self.special_tokens.items()
        }
        return {
            "tokenizer_class": type(self).__name__,
            "vocab_size": self.vocab_size,
            "bos_token_id": None,
            "eos_token_id": self.eos_token_id,
            "added_tokens_decoder": added,
        }
