"""Tokens a second of a backend alone, without HTTP, engine or tokenizer.

    python bench/speed.py [MODEL] [--backend reference|native] [--threads N] [--repeat N]

Prompt: one sequence, in steps of 512 tokens. Decode: one token a step for 1 and for 16 sequences,
each behind a prompt of 64 tokens. Medians over the repeats.
"""

import argparse
import statistics
import time

from octavo.backends.base import Backend
from octavo.config import config_from_keywords
from octavo.models.registry import build
from octavo.serving.loading import make_backend
from octavo.testing.drive import Driver
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.resolve import resolve_model

PROMPT = 512
CONTEXT = 64
BLOCK = 32


def main() -> None:
    """Print a line for each of the three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--backend", choices=("reference", "native"), default="native")
    parser.add_argument("--threads", type=int, default=0, help="of the native backend; 0: all")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--steps", type=int, default=32, help="decode steps a repeat")
    args = parser.parse_args()
    backend = load(args.model, args.backend, args.threads)
    prompt_s = [seconds_of_prompt(backend) for _ in range(args.repeat)]
    print(f"prompt {PROMPT:4}      {PROMPT / statistics.median(prompt_s):8.1f} tokens/s")
    for batch in (1, 16):
        decode_s = [seconds_of_decode(backend, batch, args.steps) for _ in range(args.repeat)]
        rate = batch * args.steps / statistics.median(decode_s)
        print(f"decode x {batch:2}       {rate:8.1f} tokens/s")


def load(model: str, backend: str, threads: int) -> Backend:
    """The backend with all tokens of the model, its weights loaded."""
    config = config_from_keywords({"model": model, "backend": backend, "threads": threads})
    with open_checkpoint(resolve_model(model)) as checkpoint:
        built = build(checkpoint)
        made = make_backend(config, built, checkpoint, built.config.vocab_size)
    made.wait_loaded()
    return made


def fresh(backend: Backend, tokens: int) -> Driver:
    """A driver with an empty cache for so many tokens."""
    return Driver(backend, num_blocks=2 + -(-tokens // BLOCK), block_size=BLOCK)


def tokens(count: int, salt: int) -> list[int]:
    """Token ids that any vocabulary has and that do not repeat soon."""
    return [(salt * 7919 + i * 31) % 251 + 3 for i in range(count)]


def seconds_of_prompt(backend: Backend) -> float:
    """One step that reads a prompt."""
    driver = fresh(backend, PROMPT)
    began = time.perf_counter()
    driver.step({"a": tokens(PROMPT, 1)})
    return time.perf_counter() - began


def seconds_of_decode(backend: Backend, batch: int, steps: int) -> float:
    """`steps` steps of one token for each of `batch` sequences."""
    driver = fresh(backend, batch * (CONTEXT + steps + BLOCK))
    driver.step({str(i): tokens(CONTEXT, i) for i in range(batch)})
    began = time.perf_counter()
    for step in range(steps):
        driver.step({str(i): tokens(1, step + i) for i in range(batch)})
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
