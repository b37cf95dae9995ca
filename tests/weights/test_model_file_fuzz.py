"""Any damage to a valid file either leaves it loadable or raises ModelFileError: nothing else."""

import struct
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.testing.model_files import Pair, Row, gguf_bytes
from octavo.testing.tiny import tiny_llama
from octavo.weights.check import check_tensors
from octavo.weights.checkpoint import open_checkpoint

SMALL = {"hidden": 32, "heads": 2, "kv_heads": 1, "layers": 1, "intermediate": 32}
FEW = settings(max_examples=60, deadline=None)


def bytes_of(**options) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_llama(Path(folder) / "m", **SMALL, **options)
        return (path if path.is_file() else path / "model.safetensors").read_bytes()


def load(path: Path, data: bytes) -> None:
    """Open and decode everything, as far as the file allows; a refusal is one short line."""
    path.write_bytes(data)
    refusal = ""
    try:
        decode_all(path if path.suffix == ".gguf" else path.parent)
    except ModelFileError as error:
        refusal = str(error)
    assert refusal.isprintable()
    assert len(refusal) < 500


def decode_all(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        check_tensors(checkpoint, shapes)
        for name, tensor in checkpoint.tensors.items():
            assert tensor.float32().shape == shapes[name]


# Most of a file is data, where damage does no harm: half of the hits go to the header.
HITS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2000), st.floats(0, 1, exclude_max=True)),
        st.one_of(
            st.binary(min_size=1, max_size=2),
            st.sampled_from([struct.pack("<Q", number) for number in (0, 2**31, 2**63, 2**64 - 1)]),
        ),
    ),
    max_size=4,
)


def damage(data: bytes, hits, cut: float) -> bytes:
    damaged = bytearray(data)
    for where, patch in hits:
        at = int(where * len(data)) if isinstance(where, float) else where % len(data)
        damaged[at : at + len(patch)] = patch
    return bytes(damaged[: int(len(damaged) * cut)])


CUT = st.one_of(st.just(1.0), st.floats(0, 1))
GGUF = bytes_of(format="gguf", weight_type="Q4_0")
SAFETENSORS = bytes_of()


@FEW
@given(hits=HITS, cut=CUT)
def test_damaged_gguf(tmp_path_factory, hits, cut):
    load(tmp_path_factory.mktemp("fuzz") / "m.gguf", damage(GGUF, hits, cut))


@FEW
@given(hits=HITS, cut=CUT)
def test_damaged_safetensors(tmp_path_factory, hits, cut):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    load(folder / "model.safetensors", damage(SAFETENSORS, hits, cut))


NUMBERS = st.one_of(st.integers(0, 64), st.integers(0, 2**64 - 1))
NAMES = st.one_of(
    st.sampled_from(["general.architecture", "general.alignment", "split.count", "split.no"]),
    st.sampled_from(["llama.attention.head_count", "llama.attention.head_count_kv"]),
    st.sampled_from(["blk.0.attn_q.weight", "blk.0.attn_k.bias", "token_embd.weight"]),
    st.text(max_size=5),
)
PAIRS = st.builds(Pair, NAMES, st.integers(0, 14), st.binary(max_size=40))
ROWS = st.builds(Row, NAMES, st.lists(NUMBERS, max_size=5).map(tuple), st.integers(0, 45), NUMBERS)
VALID = [Pair("general.architecture", 8, "llama"), Pair("llama.attention.head_count", 4, 1)]


@FEW
@given(
    pairs=st.lists(PAIRS, max_size=3),
    rows=st.lists(ROWS, max_size=3),
    data=st.binary(max_size=100),
    valid=st.booleans(),
)
def test_invented_gguf(tmp_path_factory, pairs, rows, data, valid):
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    load(path, gguf_bytes([*(VALID if valid else []), *pairs], rows, data))
