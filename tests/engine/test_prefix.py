"""Block hashes: fixed vectors, so that keys agree across versions, processes and LMCache."""

import hashlib

from octavo.engine.prefix import block_hash, block_key, extend_hashes, root_hash


def test_vectors_written_out_in_cbor() -> None:
    # CBOR by hand (RFC 8949): "0" is 61 30; [h, [1, 500], null] is 83 58 20 h 82 01 19 01f4 f6.
    root = root_hash("0")
    assert root == hashlib.sha256(bytes.fromhex("6130")).digest()
    body = bytes.fromhex("835820") + root + bytes.fromhex("8201" + "1901f4" + "f6")
    assert block_hash(root, [1, 500], None) == hashlib.sha256(body).digest()
    salted = bytes.fromhex("835820") + root + bytes.fromhex("8201" + "1901f4" + "8163726564")
    assert block_hash(root, [1, 500], ("red",)) == hashlib.sha256(salted).digest()


def test_default_root_is_fixed_and_random_is_not() -> None:
    assert root_hash(None) == root_hash("0") != root_hash("1")
    assert root_hash("random") != root_hash("random")


def test_key_ends_with_the_group() -> None:
    assert block_key(b"h" * 32, 258) == b"h" * 32 + b"\x00\x00\x01\x02"


def test_extending_in_pieces_is_extending_at_once() -> None:
    root, tokens = root_hash(None), list(range(50))
    whole: list[bytes] = []
    extend_hashes(whole, tokens, 8, root, "salt")
    pieces: list[bytes] = []
    for end in (3, 8, 9, 31, 50):
        extend_hashes(pieces, tokens[:end], 8, root, "salt")
    assert pieces == whole
    assert len(whole) == 6
    other: list[bytes] = []
    extend_hashes(other, tokens, 8, root, None)
    assert not set(other) & set(whole), "a salt changes every block"
