"""Does Octavo choose the words that llama.cpp chooses, greedily, on the same file in every type?

    python bench/greedy.py [MODEL.gguf] [--types Q4_0,Q6_K] [--tokens 32]
        [--decoded | --blas build/bin/libllama.so]

The files and types are those of accuracy.py. llama.cpp continues a few prompts, caches in fp32;
Octavo reads the same words (teacher-forced, so that every position counts) and says what it would
have chosen. A near tie is a position where one of the two prefers its word by less than 0.1 nats.
Every wider difference is printed, with what the reference backend says of the two words. Ends with
1 if at one of those the reference prefers llama.cpp's. Needs xllamacpp.

llama.cpp rounds activations where a matrix is quantised. It does not with --decoded, where it reads
the same values as F32; nor with --blas, its own build with BLAS, which multiplies 32 tokens and
more in fp32: it writes the words as ever, then reads them as one prompt and chooses again.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from accuracy import WholeProducts, log_softmax, model_in, scores
from peer_logits import PeerModel

from octavo.backends.native import NativeBackend
from octavo.backends.native_program import WEIGHT_TYPES
from octavo.models.registry import build
from octavo.text.opening import open_tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.resolve import resolve_model

NEAR = 0.1  # nats
BLAS_TOKENS = 32  # from so many on llama.cpp uses it
PROMPTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "Once upon a time there was a small boat that wanted to see the ocean. One morning",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "To bake bread you need four things: flour, water, salt and yeast. First,",
    "In 1969 the first people walked on the moon. The mission was called",
    "Photosynthesis is the process by which plants turn sunlight into",
)


class Choice(NamedTuple):
    """A position where Octavo prefers another word than llama.cpp, in nats by how much.

    by: Octavo; reference, peer: the reference and llama.cpp, for Octavo's word over llama.cpp's.
    """

    prompt: int
    position: int
    ours: int
    theirs: int
    by: float
    reference: float
    peer: float


def main() -> int:
    """Print a line for each type and one for each wide difference; 1 if one is unexplained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--types", default=",".join(WEIGHT_TYPES))
    parser.add_argument("--tokens", type=int, default=32)
    unrounded = parser.add_mutually_exclusive_group()
    unrounded.add_argument("--decoded", action="store_true", help="llama.cpp reads F32")
    unrounded.add_argument("--blas", type=Path, help="libllama.so of a build with BLAS")
    args = parser.parse_args()
    source = resolve_model(args.model)
    tokenizer = open_tokenizer(source)
    prompts = [tokenizer.encode(text) for text in PROMPTS]
    unexplained = 0
    for name in args.types.split(","):
        with ExitStack() as stack:
            path, _ = stack.enter_context(model_in(source, name))
            peer_path = path
            if args.decoded:
                peer_path, _ = stack.enter_context(model_in(path, "F32"))
            choices = compare(path, peer_path, prompts, args.tokens, args.blas)
        wide = [choice for choice in choices if min(choice.by, -choice.peer) >= NEAR]
        with_us = [choice for choice in wide if choice.reference > 0]
        unexplained += len(wide) - len(with_us)
        total = len(prompts) * args.tokens
        print(
            f"{name:6} {total - len(choices)} of {total} the same, {len(choices) - len(wide)} "
            f"near ties, {len(wide)} wider, the reference with Octavo in {len(with_us)}",
            flush=True,
        )
        for choice in wide:
            print(f"       {described(choice, tokenizer.decode)}", flush=True)
    return int(unexplained > 0)


def compare(
    path: Path,
    peer_path: Path,
    prompts: Sequence[list[int]],
    count: int,
    blas: Path | None = None,
) -> list[Choice]:
    """Where Octavo, on one file, would have chosen otherwise than llama.cpp on the other."""
    with open_checkpoint(path) as checkpoint:
        model = build(checkpoint)
        rows = model.config.vocab_size
        peer = PeerModel(peer_path, vocab_size=rows, library=blas)
        native = NativeBackend(model.program, checkpoint, vocab_size=rows, kv_dtype="float32")
        reference = WholeProducts(model.program, checkpoint, vocab_size=rows, kv_dtype="float32")
        choices = []
        for number, prompt in enumerate(prompts):
            words, theirs = peer.greedy(prompt, count)
            tokens = prompt + words[:-1]
            if blas:
                if len(tokens) < BLAS_TOKENS:
                    raise ValueError(f"a prompt and --tokens {count} are fewer than {BLAS_TOKENS}")
                theirs = peer.scores(tokens)[-count:]
            ours, right = (scores(backend, tokens)[-count:] for backend in (native, reference))
            choices += differences(
                number, log_softmax(ours), log_softmax(right), log_softmax(theirs)
            )
        peer.close()
    return choices


def differences(
    prompt: int,
    ours: npt.NDArray[np.float64],
    reference: npt.NDArray[np.float64],
    peer: npt.NDArray[np.float64],
) -> list[Choice]:
    """Log-probabilities are [positions, vocabulary] each."""
    found = []
    for position in range(len(ours)):
        best, theirs = int(ours[position].argmax()), int(peer[position].argmax())
        if best != theirs:
            gaps = (
                float(row[position, best] - row[position, theirs])
                for row in (ours, reference, peer)
            )
            found.append(Choice(prompt, position, best, theirs, *gaps))
    return found


def described(choice: Choice, decode: Callable[[Sequence[int]], str]) -> str:
    """One line."""
    return (
        f"prompt {choice.prompt}, word {choice.position}: {decode([choice.ours])!r} instead of "
        f"{decode([choice.theirs])!r}, by {choice.by:.3f}; reference by {choice.reference:+.3f}, "
        f"llama.cpp by {choice.peer:+.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
