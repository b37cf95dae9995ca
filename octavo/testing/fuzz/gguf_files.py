"""GGUF files: a valid model whose metadata, tensor table, counts, parts and bytes are damaged.

Every file opens, or is refused by a ModelFileError of one line (or NotBuilt).
"""

import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError
from octavo.models.registry import build
from octavo.testing.fuzz.bounds import check_refusal
from octavo.testing.fuzz.choices import Choices
from octavo.testing.model_files import Pair, Row, gguf_bytes, gguf_string, typed
from octavo.testing.tiny import tiny_llama
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.template import find_template
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.encodings import GGML_TYPES
from octavo.weights.gguf import read_gguf
from octavo.weights.gguf_metadata import GGUFArray, ValueKind

NAME = "gguf"
CPU_S = 1.0
GROWTH_BYTES = 64 << 20
MAX_MESSAGE = 2000  # names all known pre-tokenizers

INTEGERS = (
    *(0, 1, 2, 3, 31, 32, 33, 64, 255, 273, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    *(1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
STRINGS = (
    *("", "llama", "gemma3", "x", "a\nb", "é\u202e", "\ud800", "x" * 5000, "▁", "##", " ", "a b"),
    *("gpt2", "t5", "bert", "gemma4", "rwkv", "default", "llama-bpe", "deepseek-llm", "tekken"),
    *(
        "<0x0A>",
        "{{ messages }}",
        "{% for %}",
        "[PAD1]",
        "\0",
        "linear",
        "yarn",
        "longrope",
        "a" * 99,
    ),
)
KEYS = (
    *("general.alignment", "general.architecture", "general.file_type", "split.no"),
    *("split.count", "split.tensors.count", "llama.rope.scaling.type", "x"),
    *("llama.rope.scaling.factor", "llama.attention.key_length", "llama.expert_count"),
    *("llama.attention.sliding_window", "tokenizer.ggml.scores", "tokenizer.ggml.add_eos_token"),
    *("tokenizer.ggml.precompiled_charsmap", "tokenizer.ggml.unknown_token_id", "k" * 70_000),
    *("tokenizer.ggml.pre", "tokenizer.ggml.cls_token_id", "tokenizer.chat_template", ""),
)
TENSORS = (
    *("blk.0.attn_q.weight", "blk.0.attn_q.bias", "blk.1.attn_k.weight", "output.weight", "t", ""),
    *("model.embed_tokens.weight", "blk.00.attn_q.weight", "rope_freqs.weight", "x" * 1000, "a\nb"),
    *("blk.99999999999999999999.attn_q.weight", "blk.-1.attn_q.weight", "blk.0.attn_q.scale"),
)
SCALARS = tuple(kind for kind in ValueKind if kind not in (ValueKind.ARRAY, ValueKind.STRING))


@cache
def _model() -> tuple[tuple[Pair, ...], tuple[Row, ...], bytes]:
    """Metadata, tensor table and data of a valid file."""
    with tempfile.TemporaryDirectory() as folder:
        shape = {"hidden": 32, "heads": 2, "kv_heads": 1, "layers": 1, "intermediate": 32}
        path = tiny_llama(Path(folder) / "m.gguf", format="gguf", weight_type="Q4_0", **shape)
        file = read_gguf(path)
        pairs = tuple(Pair(key, *typed(value)) for key, value in file.metadata.items())
        numbers = {kind: number for number, kind in GGML_TYPES.items()}
        rows, data = [], b""
        for tensor in file.tensors.values():
            data += bytes(-len(data) % 32)
            rows.append(Row(tensor.name, tensor.shape[::-1], numbers[tensor.type], len(data)))
            data += tensor.data.tobytes()
        file.close()
    return pairs, tuple(rows), data


class _Damage:
    """Changes a valid file decision by decision."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def integer(self) -> int:
        choices = self._choices
        if choices.chance(2):
            return choices.number(300)
        return (choices.of(INTEGERS) + choices.number(3) - 1) & ((1 << 64) - 1)

    def text(self) -> str:
        if self._choices.chance(3):
            return self._choices.take(self._choices.number(12)).decode("utf-8", "replace")
        return self._choices.of(STRINGS)

    def value(self) -> tuple[int, Any]:
        """A kind and a value of it, or bytes that only claim to be one."""
        choices = self._choices
        form = choices.number(8)
        if form < 2:
            return ValueKind.STRING, self.text()
        if form < 4:
            kind = choices.of(SCALARS)
            return kind, self._packed(kind)
        if form < 6:
            return ValueKind.ARRAY, self._array()
        if form == 6:
            return choices.number(16), choices.take(choices.number(40))
        depth, inner = choices.of((1, 2, 3, 4, 5, 900)), choices.of((0, 1, 1 << 20))
        nested = struct.pack("<IQ", ValueKind.ARRAY, 1) * depth
        return ValueKind.ARRAY, nested + struct.pack("<IQ", ValueKind.U8, inner)

    def _packed(self, kind: ValueKind) -> bytes:
        if kind in (ValueKind.F32, ValueKind.F64):
            form = "<f" if kind is ValueKind.F32 else "<d"
            return struct.pack(form, self._choices.of(FLOATS))
        size = {"8": 1, "6": 2, "2": 4, "4": 8, "L": 1}[kind.name[-1]]
        return self.integer().to_bytes(8, "little")[:size]

    def _array(self) -> bytes:
        """Some elements, of which the length may say something else."""
        choices = self._choices
        kind = choices.of(tuple(ValueKind))
        count = choices.of((0, 1, 3, 272, 273, 274, 5000))
        claimed = count if not choices.chance(6) else self.integer()
        if kind is ValueKind.STRING:
            some = [gguf_string(self.text()) for _ in range(8)]
        elif kind is ValueKind.ARRAY:
            some = [struct.pack("<IQ", ValueKind.STRING, 0)] * 8
        else:
            some = [self._packed(kind) for _ in range(8)]
        elements = b"".join(some[i % 8] for i in range(count))
        return struct.pack("<IQ", kind, claimed) + elements

    def pairs(self, pairs: list[Pair]) -> None:
        choices = self._choices
        for _ in range(choices.number(4)):
            at = choices.number(len(pairs) + 1)
            change = choices.number(8)
            if at == len(pairs) or change == 0:
                pairs.insert(at, Pair(choices.of(KEYS), *self.value()))
            elif change == 1:
                del pairs[at]
            elif change == 2:
                pairs.append(pairs[at])
            elif change == 3:
                pairs[at] = pairs[at]._replace(key=choices.of((*KEYS, self.text())))
            elif change < 6 and isinstance(pairs[at].value, GGUFArray):
                pairs[at] = pairs[at]._replace(value=self._edited(pairs[at].value))
            else:
                pairs[at] = Pair(pairs[at].key, *self.value())

    def _edited(self, array: GGUFArray) -> GGUFArray:
        """A few elements changed, left out or put in."""
        edited = GGUFArray(array.kind, array)
        for _ in range(1 + self._choices.number(4)):
            at = self._choices.number(len(edited) + 1)
            if self._choices.chance(4):
                del edited[at : at + 1]
            elif array.kind is ValueKind.STRING:
                edited[at : at + self._choices.number(2)] = [self.text()]
            else:
                edited[at : at + self._choices.number(2)] = [self._choices.number(256) - 128]
        return edited

    def rows(self, rows: list[Row]) -> None:
        choices = self._choices
        for _ in range(choices.number(4)):
            at = choices.number(len(rows) + 1)
            change = choices.number(8)
            if at == len(rows) or change == 0:
                dims = tuple(self.integer() for _ in range(choices.number(6)))
                row = Row(choices.of(TENSORS), dims, choices.number(46), self.integer())
                rows.insert(at, row)
            elif change == 1:
                del rows[at]
            elif change == 2:
                rows.append(rows[at])
            elif change == 3:
                rows[at] = rows[at]._replace(name=choices.of((*TENSORS, self.text())))
            elif change == 4:
                rows[at] = rows[at]._replace(type_number=choices.number(50))
            elif change == 5:
                rows[at] = rows[at]._replace(offset=self.integer())
            else:
                sizes = list(rows[at].dims)
                at_dim = choices.number(len(sizes))
                sizes[at_dim : at_dim + 1] = [self.integer()]
                rows[at] = rows[at]._replace(dims=tuple(sizes))

    def header(self) -> dict[str, Any]:
        """Fields of the header that lie."""
        fields: dict[str, Any] = {}
        if self._choices.chance(10):
            fields["version"] = self.integer() & 0xFFFFFFFF
        if self._choices.chance(10):
            fields["tensor_count"] = self.integer()
        if self._choices.chance(10):
            fields["pair_count"] = self.integer()
        if self._choices.chance(30):
            fields["magic"] = self._choices.take(4)
        return fields

    def bytes(self, data: bytes) -> bytes:
        """Some bytes overwritten, most of them in the header, and the end cut off."""
        choices = self._choices
        damaged = bytearray(data)
        for _ in range(choices.number(4)):
            at = choices.number(len(data) if choices.chance(3) else 2000)
            patch = choices.of((b"\0", b"\xff", b"\x7f", b"\0" * 8, b"\xff" * 8, choices.take(2)))
            damaged[at : at + len(patch)] = patch
        return bytes(damaged[: choices.number(len(damaged))] if choices.chance(8) else damaged)


def files(data: bytes) -> dict[str, bytes]:
    """The files that these bytes decide; the first one is the model."""
    choices = Choices(data)
    damage = _Damage(choices)
    form = choices.number(8)
    if form == 7:
        return {"m.gguf": b"GGUF" + choices.rest()}
    pairs, rows, weights = _model()
    if form < 4:
        return {"m.gguf": _one(choices, damage, list(pairs), list(rows), weights)}
    return _parts(choices, damage, list(pairs), list(rows), weights)


def _one(
    choices: Choices, damage: _Damage, pairs: list[Pair], rows: list[Row], weights: bytes
) -> bytes:
    steps: tuple[Callable[[], None], ...] = (
        lambda: damage.pairs(pairs),
        lambda: damage.rows(rows),
    )
    for step in steps:
        if choices.chance(2):
            step()
    file = gguf_bytes(pairs, rows, weights, **damage.header())
    return damage.bytes(file) if choices.chance(3) else file


def _parts(
    choices: Choices, damage: _Damage, pairs: list[Pair], rows: list[Row], weights: bytes
) -> dict[str, bytes]:
    """A split file: parts may be missing, renamed, miscounted, of another model or damaged."""
    count = 1 + choices.number(4)
    claimed = count if choices.chance(2) else choices.of((0, 1, 2, 3, 4, 5, 99999, 1 << 31))
    found: dict[str, bytes] = {}
    for index in range(count):
        number = index if not choices.chance(8) else choices.number(6)
        own = pairs if index == 0 else [pairs[0]] * choices.number(2)
        kind = ValueKind.U16 if claimed < 1 << 16 else ValueKind.U64
        split = [Pair("split.no", ValueKind.U16, number), Pair("split.count", kind, claimed)]
        if choices.chance(2):
            split.append(Pair("split.tensors.count", ValueKind.I32, len(rows)))
        own = [*own, *(pair for pair in split if not choices.chance(12))]
        some = rows[index::count] if not choices.chance(12) else rows
        name = f"m-{index + 1:05}-of-{count if choices.chance(2) else min(claimed, 99999):05}.gguf"
        file = _one(choices, damage, own, list(some), weights)
        if not choices.chance(12):
            found[name] = file
    return found or {"m.gguf": b""}


def run(data: bytes) -> str:
    """Opens the model as a server does; "opened" or the beginning of the refusal."""
    written = files(data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in written.items():
            (folder / file).write_bytes(content)
        try:
            _open(folder / next(iter(written)))
        except ConfigError as error:
            return check_refusal(error, MAX_MESSAGE, name).partition(": ")[2][:34]
    return "opened"


def _open(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        vocabulary = tokenizer_from_gguf(checkpoint.metadata, path.name)
        vocabulary.decode(vocabulary.encode("Hello\n <|im_end|>é"))
        find_template(path, metadata=checkpoint.metadata)
        build(checkpoint)
        for tensor in checkpoint.tensors.values():
            assert tensor.float32().shape == tensor.shape
