"""safetensors: one file, sharded folders, and the ways in which a header or an index can lie."""

import json
import tracemalloc

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.testing.model_files import safetensors_bytes, write_safetensors
from octavo.testing.quantise import encode
from octavo.weights.encodings import TensorType
from octavo.weights.safetensors import read_folder, read_safetensors

ONES = np.ones((2, 3), np.float32)


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def file_of(header, data=b"\0" * 8, **length):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return safetensors_bytes(text, data, **length)


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16])
def test_read(tmp_path, kind):
    tensors = {"a": encode(ONES, kind), "scalar": encode(np.float32(2).reshape(()), kind)}
    read, file = read_safetensors(write_safetensors(tmp_path / "m.safetensors", tensors))
    assert read["a"].type is kind
    assert read["a"].shape == (2, 3)
    assert read["scalar"].shape == ()
    assert read["a"].data.tobytes() == tensors["a"].data.tobytes()
    assert not read["a"].data.flags.writeable
    file.close()


def test_metadata_order_and_space_are_free(tmp_path):
    path = tmp_path / "m.safetensors"
    header = {"b": entry(begin=8, end=16), "__metadata__": {"format": "pt"}, "a": entry()}
    path.write_bytes(file_of(json.dumps(header, indent=3).encode() + b"   ", b"\1" * 16))
    assert set(read_safetensors(path)[0]) == {"a", "b"}


def test_types_that_are_not_decoded_still_have_a_size(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(file_of({"a": entry("F8_E4M3", (2, 4))}))
    assert read_safetensors(path)[0]["a"].type is TensorType.F8_E4M3


HEADERS = {
    "empty file": (b"", "empty"),
    "seven bytes": (b"\0" * 7, "header length 0 goes beyond"),
    "length of all ones": (file_of({}, length=2**64 - 1), "goes beyond the end"),
    "longer than the file": (file_of({}, length=4096), "goes beyond the end"),
    "no header": (file_of(b""), "not valid JSON"),
    "not JSON": (file_of(b"{{{{"), "not valid JSON"),
    "not UTF-8": (file_of(b'{"\xff":1}'), "not valid JSON"),
    "deep list": (file_of(b"[" * 1_000_000), "nested too deeply"),
    "deep object": (file_of(b'{"a":' * 1_000_000), "nested too deeply"),
    "braces": (file_of(b"{" * 1_000_000), "not valid JSON"),
    "a list": (file_of(b"[]"), "no JSON object"),
    "number of many digits": (file_of(b'{"a":' + b"9" * 10_000 + b"}"), "not valid JSON"),
    "entry is a number": (file_of({"w": 1}), "'w' is not described"),
    "no offsets": (file_of({"w": {"dtype": "F32", "shape": [1]}}), "'data_offsets' of tensor 'w'"),
    "three offsets": (
        file_of({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}}),
        "not a begin and an end",
    ),
    "offsets backwards": (file_of({"w": entry(begin=8, end=0)}), "not a begin and an end"),
    "offset negative": (file_of({"w": entry(begin=-8, end=0)}), "no list of whole numbers"),
    "offset a float": (file_of({"w": entry(begin=0.0)}), "no list of whole numbers"),
    "offset past the end": (file_of({"w": entry(end=16)}), "beyond the end"),
    "shape is a bool": (file_of({"w": entry(shape=(True, 2))}), "no list of whole numbers"),
    "shape is text": (file_of({"w": entry(shape="22")}), "does not fill|no list"),
    "shape wrong": (file_of({"w": entry(shape=(3,))}), "does not fill"),
    "shape overflows": (file_of({"w": entry(shape=(2**62, 4))}), "does not fill"),
    "shape of 2^64": (file_of({"w": entry(shape=(2**64,))}), "no list of whole numbers"),
    "nine dimensions": (file_of({"w": entry(shape=(1,) * 8 + (2,))}), "9 dimensions"),
    "dtype unknown": (file_of({"w": entry("Q99")}), "dtype of tensor 'w' is 'Q99'"),
    "dtype missing": (file_of({"w": entry(None)}), "dtype of tensor 'w' is missing"),
    "overlap": (
        file_of({"a": entry(), "b": entry(shape=(1,), begin=4, end=8)}),
        "'b' overlaps",
    ),
    "gap": (file_of({"a": entry(begin=8, end=16)}, b"\0" * 16), "'a' comes after a gap"),
    "more data": (file_of({"a": entry()}, b"\0" * 9), "goes on after the last"),
    "too many": (file_of(dict.fromkeys(map(str, range(70_000)))), "70000 tensors"),
    "key twice": (
        file_of(b'{"w":%s,"w":%s}' % ((json.dumps(entry()).encode(),) * 2)),
        "'w' occurs twice",
    ),
    "name breaks the line": (file_of({"a\nb": 1}), r"'a\nb'"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_header_refused(tmp_path, case):
    data, faults = HEADERS[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as refused:
        read_safetensors(path)
    message = str(refused.value)
    assert message.startswith("model.safetensors: ")
    assert any(fault in message for fault in faults.split("|"))
    assert message.isprintable()


def test_header_of_200_mb_is_not_even_read(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((200 << 20).to_bytes(8, "little"))
        file.truncate(8 + (200 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"model\.safetensors: .*larger than 8 MiB"):
            read_safetensors(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


# ------------------------------------------------------------------------------------------ folders


def shards(folder, weight_map, **files):
    """Files of one F32 tensor each name, and an index."""
    for name, tensors in files.items():
        write_safetensors(folder / f"{name}.safetensors", dict.fromkeys(tensors, ONES))
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def refusal(folder):
    with pytest.raises(ModelFileError) as refused:
        read_folder(folder)
    assert str(refused.value).isprintable()
    return str(refused.value)


def test_index_joins_shards(tmp_path):
    weight_map = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}
    tensors, files = read_folder(shards(tmp_path, weight_map, one=["a", "b"], two=["c"]))
    assert {name: tensor.file for name, tensor in tensors.items()} == weight_map
    assert len(files) == 2


def test_single_file_comes_first(tmp_path):
    shards(tmp_path, {"a": "absent.safetensors"}, model=["a"])
    assert list(read_folder(tmp_path)[0]) == ["a"]


def test_tensor_in_two_shards(tmp_path):
    shards(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"}, one=["a"], two=["b", "a"])
    assert refusal(tmp_path) == "two.safetensors: the tensor 'a' is in another shard too"


def test_index_names_what_a_shard_lacks(tmp_path):
    shards(tmp_path, {"a": "one.safetensors", "x": "one.safetensors"}, one=["a"])
    assert "'one.safetensors' does not hold 'x'" in refusal(tmp_path)
    shards(tmp_path, {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"})
    write_safetensors(tmp_path / "two.safetensors", {"b": ONES, "c": ONES})
    assert "'one.safetensors' does not hold 'b'" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("index", "fault"),
    [
        ("{", "not valid JSON"),
        ("[]", "no JSON object"),
        ("{}", "weight_map"),
        ('{"weight_map": []}', "weight_map"),
        ('{"weight_map": {}}', "weight_map"),
        ('{"weight_map": {"a": 1}}', "weight_map"),
        ('{"weight_map": {"a": "absent.safetensors"}}', "absent.safetensors: cannot be read"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', "'pytorch_model.bin' is no .safetensors"),
        ('{"weight_map": {"a": "\\u0000.safetensors"}}', "safetensors"),
        ('{"weight_map": {"a": "\\ud800.safetensors"}}', "safetensors"),
        ('{"weight_map": {"a": "b\\nc.safetensors"}}', "safetensors"),
        ('{"weight_map": {"a": "%s.safetensors"}}' % ("x" * 5000), "too long"),
    ],
)
def test_index_of_no_sense(tmp_path, index, fault):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    message = refusal(tmp_path)
    assert fault in message
    assert len(message) < 400


@pytest.mark.parametrize("form", ["up", "absolute", "link", "folder link", "loop"])
def test_nothing_outside_the_folder_is_opened(tmp_path, form):
    folder = tmp_path / "model"
    folder.mkdir()
    secret = write_safetensors(tmp_path / "secret.safetensors", {"a": ONES})
    (folder / "link.safetensors").symlink_to(secret)
    (folder / "d").symlink_to(tmp_path)
    (folder / "loop.safetensors").symlink_to(folder / "loop.safetensors")
    name = {
        "up": "../secret.safetensors",
        "absolute": str(secret),
        "link": "link.safetensors",
        "folder link": "d/secret.safetensors",
        "loop": "loop.safetensors",
    }[form]
    shards(folder, {"a": name})
    message = refusal(folder)
    assert "loop.safetensors" in message if form == "loop" else "outside the model's" in message


def test_single_file_that_leads_outside(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    secret = write_safetensors(tmp_path / "secret.safetensors", {"a": ONES})
    (folder / "model.safetensors").symlink_to(secret)
    assert "outside the model's folder" in refusal(folder)


def test_snapshot_of_the_hub_cache_links_to_its_blobs(tmp_path):
    """models--org--name/snapshots/<revision>/model.safetensors -> ../../blobs/<hash>"""
    snapshot, blobs = tmp_path / "snapshots" / "0abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_safetensors(blobs / "1234", {"a": ONES})
    (snapshot / "model.safetensors").symlink_to("../../blobs/1234")
    assert list(read_folder(snapshot)[0]) == ["a"]


def test_links_within_the_folder_are_fine(tmp_path):
    write_safetensors(tmp_path / "real.safetensors", {"a": ONES})
    (tmp_path / "model.safetensors").symlink_to("real.safetensors")
    assert list(read_folder(tmp_path)[0]) == ["a"]


def test_pickles_are_never_opened(tmp_path):
    pickle = tmp_path / "pytorch_model.bin"
    pickle.mkdir()  # opening it would fail otherwise
    message = refusal(tmp_path)
    assert message.startswith(tmp_path.name)
    assert "'pytorch_model.bin' is a pickle, which is never opened" in message
    pickle.rmdir()
    assert "no model.safetensors" in refusal(tmp_path)
