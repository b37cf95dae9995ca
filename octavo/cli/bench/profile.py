"""`octavo bench profile`: what each operation of a model's steps costs, on the backend alone."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.cli.report import exit_code_of
from octavo.config import (
    CacheOptions,
    Config,
    ModelOptions,
    config_from_keywords,
    parse_values,
    usage,
)
from octavo.config.fields import integer, option, same, switch, text
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.backends.base import Backend
    from octavo.cli.bench.workload import Sizes
    from octavo.graph import Program

PROG = "octavo bench profile"
STDOUT = "-"


@dataclass(frozen=True)
class ProfileOptions:
    """Profile"""

    model: str = same(ModelOptions, "model")
    backend: str = same(ModelOptions, "backend")
    threads: int = same(ModelOptions, "threads")
    kv_cache_dtype: str = same(CacheOptions, "kv_cache_dtype")
    block_size: int = same(CacheOptions, "block_size")
    prompt_tokens: int = option(
        512,
        "--prompt-tokens",
        doc="Tokens of each sequence's prompt; all prompts are read in one step.",
        convert=integer(1),
        metavar="N",
    )
    decode_tokens: int = option(
        64,
        "--decode-tokens",
        doc="Steps after that, each of a token for every sequence.",
        convert=integer(1),
        metavar="N",
    )
    concurrency: int = option(
        1, "--concurrency", doc="Sequences that run together.", convert=integer(1), metavar="N"
    )
    repeat: int = option(
        5,
        "--repeat",
        doc="Times that all is measured; what is shown are medians.",
        convert=integer(1),
        metavar="N",
    )
    json: str | None = option(
        None,
        "--json",
        doc="Write the figures to this file too; -: to standard output, in place of the tables.",
        convert=text,
        metavar="FILE",
    )
    verbose: bool = switch(False, "--verbose", "-v", doc="Log at level debug.")


OF_MODEL = ("model", "backend", "threads", "kv_cache_dtype", "block_size")


def profile_command(argv: Sequence[str]) -> int:
    """Parse the flags, measure, print, and return the exit code."""
    return exit_code_of(lambda: _profile(argv), PROG, usage(PROG), who="bench", has_verbose=True)


def _profile(argv: Sequence[str]) -> int:
    _, options = parse_values(
        (),
        ProfileOptions,
        argv,
        prog=PROG,
        description="Time each operation of a prefill step and of decode steps of MODEL.",
    )
    config = config_from_keywords({name: getattr(options, name) for name in OF_MODEL})
    _check_json_path(options.json)
    if options.verbose:
        from octavo.log import setup_logging

        setup_logging(verbose=True)
    from octavo.cli.bench.profile_report import as_text

    profile = _measure(config, options)
    if options.json != STDOUT:
        print(as_text(profile), end="")
    if options.json is not None:
        _write_json(options.json, profile)
    return 0


def _measure(config: Config, options: ProfileOptions) -> dict[str, Any]:
    """What `profile_report.as_json` makes. Raises ConfigError."""
    from octavo.cli.bench.operations import measure
    from octavo.cli.bench.profile_report import as_json
    from octavo.cli.bench.workload import Sizes, make_workloads
    from octavo.models.registry import build
    from octavo.serving.loading import make_backend
    from octavo.weights.checkpoint import open_checkpoint
    from octavo.weights.resolve import resolve_model

    sizes = Sizes(options.concurrency, options.prompt_tokens, options.decode_tokens)
    with open_checkpoint(resolve_model(config.model.model)) as checkpoint:
        model = build(checkpoint)
        _check_length(sizes, model.config.max_position_embeddings)
        vocab_size = model.config.vocab_size
        backend = make_backend(config, model, checkpoint, vocab_size)
        stored = {name: checkpoint.tensors[name].stored for name in model.program.weights}
        weight_bytes = {name: tensor.data.nbytes for name, tensor in stored.items()}
    backend.wait_loaded()
    if backend.name == "reference":
        weight_bytes = _decoded_bytes(model.program)
    _allocate(backend, sizes, config.cache.block_size)
    workloads = make_workloads(
        sizes,
        groups=len(backend.cache_groups),
        block_size=config.cache.block_size,
        vocab_size=vocab_size,
    )
    measured = measure(backend, model.program, workloads, weight_bytes, options.repeat)
    settings = {
        "model": config.served_name,
        "backend": backend.name,
        "threads": options.threads,
        "kv_cache_dtype": options.kv_cache_dtype,
        "block_size": options.block_size,
        "prompt_tokens": options.prompt_tokens,
        "decode_tokens": options.decode_tokens,
        "concurrency": options.concurrency,
        "repeat": options.repeat,
    }
    return as_json(settings, measured)


def _decoded_bytes(program: "Program") -> dict[str, int]:
    """The reference backend holds float32; the native one what the file has, in another order."""
    import math

    return {name: 4 * math.prod(shape) for name, shape in program.weights.items()}


def _check_length(sizes: "Sizes", model_len: int) -> None:
    if sizes.context > model_len:
        raise ConfigError(
            f"--prompt-tokens {sizes.prompt_tokens} and --decode-tokens {sizes.decode_tokens} "
            f"make {sizes.context} tokens, but the model's length is {model_len}; lower one of them"
        )


def _allocate(backend: "Backend", sizes: "Sizes", block_size: int) -> None:
    from octavo.engine.settings import available_memory_bytes

    num_blocks = sizes.num_blocks(block_size)
    token_bytes = sum(group.bytes_per_token for group in backend.cache_groups)
    needed, free = num_blocks * block_size * token_bytes, available_memory_bytes()
    if needed > free:
        raise ConfigError(
            f"--concurrency {sizes.sequences} with {sizes.context} tokens each needs a KV cache of "
            f"{needed >> 20} MiB, but {free >> 20} MiB are free; lower --concurrency, "
            "--prompt-tokens or --decode-tokens"
        )
    backend.allocate_cache(num_blocks, block_size)


def _check_json_path(path: str | None) -> None:
    """Before the measurement, which takes long."""
    if path not in (None, STDOUT) and not os.path.isdir(os.path.dirname(path) or "."):
        raise ConfigError(f"--json {path}: there is no such folder; name one that is there")


def _write_json(path: str, profile: dict[str, Any]) -> None:
    words = json.dumps(profile, indent=2) + "\n"
    if path == STDOUT:
        print(words, end="")
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(words)
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot be written: {error.strerror}") from None
