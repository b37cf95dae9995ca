"""How far the native backend, and llama.cpp, are from the reference backend on the same weights.

    python bench/accuracy.py [MODEL.gguf] [--types Q4_0,Q6_K] [--tokens 4096]

All matrices of MODEL are encoded again in each type (by default every type that has kernels); types
with blocks of 256 get it widened with zeros where its rows are no multiples, the same function. The
type `stored` is the file as it is.
Every document is read with its own words (teacher-forced), the cache in fp32. For each type: the
mean over positions of KL(reference, other) over the whole vocabulary in nats, the perplexity beside
the reference's, and how often the most likely token is the same. llama.cpp is measured when
xllamacpp is installed. Ends with 1 if Octavo's KL is above the limit of a type.
"""

import argparse
import importlib.util
import json
import pydoc_data.topics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.backends.base import Batch
from octavo.backends.native import NativeBackend
from octavo.backends.native_program import WEIGHT_TYPES
from octavo.backends.reference import ReferenceBackend
from octavo.graph import Op
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.in_type import write_in_type
from octavo.text.opening import open_tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.resolve import resolve_model

DOCUMENT = 512  # tokens
STORED = "stored"
LIMITS = {"F32": 1e-6, "F16": 1e-4, "BF16": 1e-4}  # of KL
LIMIT = 2e-3  # of block types
Score = Callable[[Sequence[int]], npt.NDArray[np.float32]]


@dataclass
class Distance:
    """Sums over positions."""

    positions: int = 0
    kl: float = 0.0
    same_best: int = 0
    surprise: float = 0.0  # of the words that came, in nats
    reference_surprise: float = 0.0

    def add(
        self,
        reference: npt.NDArray[np.float32],
        other: npt.NDArray[np.float32],
        tokens: Sequence[int],
    ) -> None:
        """Take one document's scores, [tokens, vocabulary] each."""
        for i in range(0, len(tokens), 64):  # few rows at a time: float64 is large
            p, q = log_softmax(reference[i : i + 64]), log_softmax(other[i : i + 64])
            self.kl += float((np.exp(p) * (p - q)).sum())
            self.same_best += int((p.argmax(-1) == q.argmax(-1)).sum())
            self.positions += len(p)
            follows = np.array(tokens[i + 1 : i + 65])
            rows = np.arange(len(follows))
            self.surprise -= float(q[rows, follows].sum())
            self.reference_surprise -= float(p[rows, follows].sum())

    def line(self, documents: int) -> str:
        """The figures of a table row."""
        count = self.positions - documents
        perplexity = np.exp(self.surprise / count)
        change = 100 * (perplexity / np.exp(self.reference_surprise / count) - 1)
        best = 100 * self.same_best / self.positions
        return (
            f"KL {self.kl / self.positions:9.2e}   perplexity {perplexity:8.4f} ({change:+.3f} %)"
            f"   same best {best:.2f} %"
        )


class WholeProducts(ReferenceBackend):
    """The reference with products of whole matrices: their sums differ by the number of rows in the
    last bits, which is nothing here, and take a tenth of the time."""

    def _run(self, op: Op, inputs: list[npt.NDArray[Any]], batch: Batch) -> npt.NDArray[Any]:
        if op.name != "logits" and (op.name != "linear" or len(op.weights) > 1):
            return super()._run(op, inputs, batch)
        product: npt.NDArray[Any] = inputs[0] @ self._weights[op.weights[0]].T
        return product * np.float32(op.attrs.get("scale", 1.0))


def main() -> int:
    """Print two lines for each type; 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--types", default=",".join(WEIGHT_TYPES))
    parser.add_argument("--tokens", type=int, default=4096)
    args = parser.parse_args()
    source = resolve_model(args.model)
    tokenizer = open_tokenizer(source)
    documents = make_documents(tokenizer.encode, args.tokens)
    above = []
    print(f"{sum(map(len, documents))} tokens in {len(documents)} documents of {DOCUMENT}")
    for name in args.types.split(","):
        with model_in(source, name) as (path, widened):
            distances = measure(path, documents)
        note = "widened" if widened else ""
        for who, distance in distances.items():
            print(f"{name:6} {note:7} {who:9} {distance.line(len(documents))}", flush=True)
        ours = distances["octavo"]
        if not ours.kl <= LIMITS.get(name, LIMIT) * ours.positions:
            above.append(name)
    if above:
        print(f"above their limit: {', '.join(above)}")
    return int(bool(above))


@contextmanager
def model_in(source: Path, weight_type: str) -> Iterator[tuple[Path, bool]]:
    """The model's file with every matrix in this type, and whether it was widened for it."""
    if weight_type == STORED:
        yield source, False
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{weight_type}.gguf"
        yield path, write_in_type(source, path, weight_type)


def make_documents(encode: Callable[[str], list[int]], tokens: int) -> list[list[int]]:
    """English, code, data and numbers that every Python installation carries, and mixed scripts."""
    topics = [text for _, text in sorted(pydoc_data.topics.topics.items()) if len(text) > 3000]
    sources = sorted(Path(json.__file__).parent.glob("*.py"))
    texts = [
        topics[0],
        sources[0].read_text(encoding="utf-8"),
        topics[len(topics) // 4],
        numbers_and_scripts(),
        topics[len(topics) // 2],
        sources[-1].read_text(encoding="utf-8"),
        topics[-1],
        json.dumps([{"id": i, "name": f"item {i * i}", "tags": [i % 3, None]} for i in range(99)]),
    ]
    documents: list[list[int]] = []
    for text in (texts * (1 + tokens // (DOCUMENT * len(texts))))[: -(-tokens // DOCUMENT)]:
        start = 600 * (len(documents) // len(texts))  # later rounds read further on
        documents.append(encode(text[start : start + 8000])[:DOCUMENT])
    return documents


def numbers_and_scripts() -> str:
    """A table of squares among sentences in several languages."""
    sentences = [
        "La rivière traverse la vieille ville avant d'atteindre la mer.",
        "Der Zug fährt jeden Morgen um sieben Uhr vom Bahnhof ab.",
        "El gato duerme sobre la mesa mientras llueve.",
        "Вечером они гуляли вдоль реки и говорили о книгах.",
        "今日はとても良い天気ですね。",
    ]
    return "\n".join(f"{i}: {i * i} {sentences[i % 5]} {i**3 / 7:.4f}" for i in range(80))


def measure(path: Path, documents: Sequence[Sequence[int]]) -> dict[str, Distance]:
    """The distances of the native backend and, where it is installed, of llama.cpp."""
    with open_checkpoint(path) as checkpoint:
        model = build(checkpoint)
        rows = model.config.vocab_size
        reference = WholeProducts(model.program, checkpoint, vocab_size=rows)
        native = NativeBackend(model.program, checkpoint, vocab_size=rows, kv_dtype="float32")
        others: dict[str, Score] = {"octavo": lambda tokens: scores(native, tokens)}
        peer = None
        if importlib.util.find_spec("xllamacpp"):
            from peer_logits import PeerModel

            peer = PeerModel(path, vocab_size=rows, context=DOCUMENT)
            others["llama.cpp"] = peer.scores
        distances = {who: Distance() for who in others}
        for done, tokens in enumerate(documents, 1):
            expected = scores(reference, tokens)
            for who, score in others.items():
                distances[who].add(expected, score(tokens), tokens)
            print(f"{path.stem}: {done} of {len(documents)} documents", file=sys.stderr)
        if peer is not None:
            peer.close()
        return distances


def scores(
    backend: ReferenceBackend | NativeBackend, tokens: Sequence[int]
) -> npt.NDArray[np.float32]:
    """Log-probabilities after each token, [tokens, vocabulary]."""
    driver = Driver(backend, num_blocks=2 + DOCUMENT // 32, block_size=32)
    return driver.scores(tokens, [len(tokens)])


def log_softmax(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Over the last axis, in float64."""
    x = values.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


if __name__ == "__main__":
    sys.exit(main())
