"""Model folders: headers of safetensors, the index of shards and config.json, all damaged.

Every folder opens, or is refused by a ModelFileError of one line (or NotBuilt).
"""

import json
import os
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError
from octavo.models.registry import build
from octavo.testing.fuzz import json_damage
from octavo.testing.fuzz.bounds import check_refusal
from octavo.testing.fuzz.choices import Choices
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.safetensors import INDEX_NAME, LENGTH_BYTES

NAME = "safetensors"
CPU_S = 1.0
GROWTH_BYTES = 64 << 20
MAX_MESSAGE = 500
LENGTHS = (0, 1, 7, 1 << 20, (8 << 20) + 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
SHARD_NAMES = (
    *(
        "../a.safetensors",
        "/etc/passwd",
        "x.bin",
        "",
        ".",
        "a/../../b.safetensors",
        "\0.safetensors",
    ),
    *("link.safetensors", "loop.safetensors", "x" * 999 + ".safetensors", "a\nb.safetensors"),
)


@cache
def _model(shards: int) -> dict[str, bytes]:
    """The files of a valid folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = tiny_llama(
            Path(name) / "m",
            shards=shards,
            hidden=32,
            heads=2,
            kv_heads=1,
            layers=1,
            intermediate=32,
        )
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def _weights(choices: Choices, file: bytes) -> bytes:
    """A file whose header, or its length, or its data is damaged."""
    form = choices.number(8)
    if form == 0:
        return choices.rest()
    length = int.from_bytes(file[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + length
    header = json_damage.damaged(choices, json.loads(file[LENGTH_BYTES:end]))
    if form == 1:
        header = _like(choices, header)
    written = json_damage.text(choices, header)
    claimed = choices.of(LENGTHS) if choices.chance(8) else len(written)
    data = file[end:] + choices.take(choices.number(3))
    return struct.pack("<Q", claimed) + written + data[: len(data) - choices.number(3)]


def _like(choices: Choices, header: Any) -> Any:
    """Entries whose shapes and offsets overlap, leave gaps or multiply to more than 64 bits."""
    for entry in header.values() if isinstance(header, dict) else ():
        if isinstance(entry, dict) and choices.chance(4):
            big = choices.of((0, 1, 2, 1 << 31, 1 << 62, (1 << 63) - 1))
            entry["shape"] = [big] * choices.number(10)
            entry["data_offsets"] = [choices.number(9) - 1, choices.of((0, 4, big, -1))]
    return header


def files(data: bytes) -> dict[str, bytes]:
    """The files that these bytes decide."""
    choices = Choices(data)
    found = dict(_model(choices.of((1, 3))))
    for name in sorted(found):
        if not choices.chance(3):
            continue
        if name.endswith(".safetensors"):
            found[name] = _weights(choices, found[name])
        elif name != "tokenizer.json":
            value = json_damage.damaged(choices, json.loads(found[name]))
            if name == INDEX_NAME and choices.chance(3) and isinstance(value, dict):
                value["weight_map"] = {"lm_head.weight": choices.of(SHARD_NAMES)}
            found[name] = json_damage.text(choices, value)
    if choices.chance(10):
        del found[choices.of(sorted(found))]
    return found


def run(data: bytes) -> str:
    """Opens the model as a server does; "opened" or the beginning of the refusal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "m"
        folder.mkdir()
        for file, content in files(data).items():
            (folder / file).write_bytes(content)
        os.symlink("/etc/hostname", folder / "link.safetensors")
        os.symlink("loop.safetensors", folder / "loop.safetensors")
        try:
            with open_checkpoint(folder) as checkpoint:
                build(checkpoint)
                for tensor in checkpoint.tensors.values():
                    assert tensor.float32().shape == tensor.shape
        except ConfigError as error:
            return check_refusal(error, MAX_MESSAGE, name).partition(": ")[2][:34]
    return "opened"
