"""Mapped files: how long a mapping lives."""

import weakref

from octavo.weights.mapped import MappedFile


def test_the_mapping_ends_with_the_last_slice(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = MappedFile(path)
    mapping = weakref.ref(file.data)
    piece = file.bytes[3:5]
    file.close()
    assert piece.tobytes() == b"34"
    assert mapping() is not None
    del piece
    assert mapping() is None
    assert (file.data, file.bytes.size) == (b"", 0)


def test_without_slices_it_ends_at_once(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = MappedFile(path)
    mapping = weakref.ref(file.data)
    file.close()
    assert mapping() is None
