"""Paged key and value memory of the reference backend: one array of blocks a layer."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from octavo.backends.base import CacheGroup, Float32Array, Int32Array, Int64Array
from octavo.errors import ConfigError
from octavo.graph import CacheNeed

KV_DTYPES = ("auto", "float32", "float16", "bfloat16")


def kv_numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The NumPy type of `--kv-cache-dtype`; auto is float32. ConfigError for another."""
    if name == "bfloat16":
        import ml_dtypes

        dtype: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return dtype
    if name not in KV_DTYPES:
        raise ConfigError(
            f"--kv-cache-dtype {name!r} is not known to the reference backend; "
            f"choose one of {', '.join(KV_DTYPES)}"
        )
    return np.dtype("float32" if name == "auto" else name)


def cache_group(need: CacheNeed, dtype: np.dtype[np.generic]) -> CacheGroup:
    """What a program needs, in bytes of this type."""
    per_layer = 2 * need.kv_heads * need.head_dim * dtype.itemsize
    return CacheGroup(need.kind, need.layers, per_layer * len(need.layers))


@dataclass(frozen=True, slots=True)
class PagedLayer:
    """keys, values: [num_blocks, block_size, kv_heads, head_dim]. Zeroed, so touched lazily."""

    keys: NDArray[np.generic]
    values: NDArray[np.generic]

    @classmethod
    def zeros(
        cls, num_blocks: int, block_size: int, need: CacheNeed, dtype: DTypeLike
    ) -> "PagedLayer":
        """Memory for `num_blocks` blocks."""
        shape = (num_blocks, block_size, need.kv_heads, need.head_dim)
        return cls(np.zeros(shape, dtype), np.zeros(shape, dtype))

    def write(self, slots: Int64Array, keys: Float32Array, values: Float32Array) -> None:
        """slots: [T]; keys, values: [T, kv_heads, head_dim]."""
        flat = (-1, *self.keys.shape[2:])
        self.keys.reshape(flat)[slots] = keys
        self.values.reshape(flat)[slots] = values

    def read(self, block_table: Int32Array, context: int) -> tuple[Float32Array, Float32Array]:
        """The first `context` positions through the table: two of [context, kv_heads, head_dim]."""
        blocks = block_table[: -(-context // self.keys.shape[1])]
        flat = (-1, *self.keys.shape[2:])
        keys, values = (
            np.asarray(part[blocks].reshape(flat)[:context], np.float32)
            for part in (self.keys, self.values)
        )
        return keys, values


def paged_layers(
    needs: tuple[CacheNeed, ...], num_blocks: int, block_size: int, dtype: DTypeLike
) -> Mapping[int, tuple[int, PagedLayer]]:
    """layer -> (its cache group, its memory)."""
    return {
        layer: (group, PagedLayer.zeros(num_blocks, block_size, need, dtype))
        for group, need in enumerate(needs)
        for layer in need.layers
    }
