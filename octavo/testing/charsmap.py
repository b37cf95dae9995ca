"""Writes SentencePiece's precompiled normalisers, as `tokenizer.ggml.precompiled_charsmap` holds
them (see `octavo.text.charsmap`), without its packing: one block of the array a node.
"""

from collections.abc import Mapping

import numpy as np

BLOCK = 256


def make_charsmap(replacements: Mapping[str, str]) -> bytes:
    """`replacements`: what stands in a text -> what it becomes; keys without zero bytes."""
    values, texts = {}, b""
    for key, text in replacements.items():
        values[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
    prefixes = {key[:end] for key in values for end in range(len(key) + 1)} | {b""}
    units = np.zeros((1 + len(prefixes)) * BLOCK, np.uint32)
    places = {b"": 0}
    for number, prefix in enumerate(sorted(prefixes, key=len), 1):
        place, base = places[prefix], number * BLOCK
        units[place] |= np.uint32((place ^ base) << 10)
        if prefix in values:
            units[place] |= np.uint32(1 << 8)
            units[base] = np.uint32(1 << 31 | values[prefix])
        children = [p for p in prefixes if len(p) == len(prefix) + 1]
        for child in children:
            if child[:-1] == prefix:
                places[child] = base ^ child[-1]
                units[base ^ child[-1]] |= np.uint32(child[-1])
    blob = units.astype("<u4").tobytes()
    return len(blob).to_bytes(4, "little") + blob + texts
