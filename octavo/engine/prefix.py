"""Chained hashes of full blocks: what makes a prefix findable in the cache.

hash(block) = SHA-256 over the canonical CBOR (RFC 8949, section 4.2) of [parent, [token ids], extra
keys or null], as in vLLM's `sha256_cbor`; keys therefore agree across processes.
"""

import hashlib
import os
from collections.abc import Sequence

import cbor2

# Used when no seed is configured: hashes then agree across processes and with LMCache's default.
DEFAULT_SEED = "0"

ExtraKeys = tuple[str | tuple[str, int], ...]


def root_hash(seed: str | None) -> bytes:
    """Parent of every first block. `random`: 32 random bytes, so that no other process agrees."""
    if seed == "random":
        return os.urandom(32)
    return _digest(DEFAULT_SEED if seed is None else seed)


def block_hash(parent: bytes, token_ids: Sequence[int], extra: ExtraKeys | None) -> bytes:
    """Hash of one full block."""
    return _digest((parent, tuple(token_ids), extra))


def block_key(digest: bytes, group: int) -> bytes:
    """Key in the block table: a block's hash and the cache group it lies in."""
    return digest + group.to_bytes(4, "big")


def extend_hashes(
    hashes: list[bytes],
    token_ids: Sequence[int],
    block_size: int,
    root: bytes,
    cache_salt: str | None,
) -> None:
    """Append the hashes of the blocks that `token_ids` fills and `hashes` does not have yet."""
    for index in range(len(hashes), len(token_ids) // block_size):
        parent = hashes[-1] if hashes else root
        # The salt in the first block is enough: every later block descends from it.
        extra: ExtraKeys | None = (cache_salt,) if cache_salt and index == 0 else None
        start = index * block_size
        hashes.append(block_hash(parent, token_ids[start : start + block_size], extra))


def _digest(value: object) -> bytes:
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()
