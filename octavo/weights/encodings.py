"""The table of tensor encodings: elements and bytes of a block, for every type we can name.

Sources: the GGML type table of the GGUF format document, and the dtype list of safetensors.
"""

from enum import Enum
from typing import Self


class TensorType(Enum):
    """One encoding. `block_size` elements of a row are stored together in `block_bytes` bytes."""

    F32 = ("F32", 1, 4)
    F16 = ("F16", 1, 2)
    BF16 = ("BF16", 1, 2)
    F64 = ("F64", 1, 8)
    I8 = ("I8", 1, 1)
    I16 = ("I16", 1, 2)
    I32 = ("I32", 1, 4)
    I64 = ("I64", 1, 8)
    # GGML block types
    Q1_0 = ("Q1_0", 128, 18)
    Q4_0 = ("Q4_0", 32, 18)
    Q4_1 = ("Q4_1", 32, 20)
    Q5_0 = ("Q5_0", 32, 22)
    Q5_1 = ("Q5_1", 32, 24)
    Q8_0 = ("Q8_0", 32, 34)
    Q8_1 = ("Q8_1", 32, 36)
    Q2_K = ("Q2_K", 256, 84)
    Q3_K = ("Q3_K", 256, 110)
    Q4_K = ("Q4_K", 256, 144)
    Q5_K = ("Q5_K", 256, 176)
    Q6_K = ("Q6_K", 256, 210)
    Q8_K = ("Q8_K", 256, 292)
    IQ1_S = ("IQ1_S", 256, 50)
    IQ1_M = ("IQ1_M", 256, 56)
    IQ2_XXS = ("IQ2_XXS", 256, 66)
    IQ2_XS = ("IQ2_XS", 256, 74)
    IQ2_S = ("IQ2_S", 256, 82)
    IQ3_XXS = ("IQ3_XXS", 256, 98)
    IQ3_S = ("IQ3_S", 256, 110)
    IQ4_NL = ("IQ4_NL", 32, 18)
    IQ4_XS = ("IQ4_XS", 256, 136)
    TQ1_0 = ("TQ1_0", 256, 54)
    TQ2_0 = ("TQ2_0", 256, 66)
    MXFP4 = ("MXFP4", 32, 17)
    NVFP4 = ("NVFP4", 64, 36)
    # safetensors only
    BOOL = ("BOOL", 1, 1)
    U8 = ("U8", 1, 1)
    U16 = ("U16", 1, 2)
    U32 = ("U32", 1, 4)
    U64 = ("U64", 1, 8)
    C64 = ("C64", 1, 8)
    F8_E4M3 = ("F8_E4M3", 1, 1)
    F8_E5M2 = ("F8_E5M2", 1, 1)
    F8_E8M0 = ("F8_E8M0", 1, 1)
    F8_E4M3FNUZ = ("F8_E4M3FNUZ", 1, 1)
    F8_E5M2FNUZ = ("F8_E5M2FNUZ", 1, 1)
    F6_E2M3 = ("F6_E2M3", 4, 3)
    F6_E3M2 = ("F6_E3M2", 4, 3)
    F4 = ("F4", 2, 1)

    def __new__(cls, label: str, block_size: int, block_bytes: int) -> Self:
        member = object.__new__(cls)
        member._value_ = label
        return member

    def __init__(self, label: str, block_size: int, block_bytes: int) -> None:
        self.block_size = block_size
        self.block_bytes = block_bytes

    def size_bytes(self, elements: int) -> int:
        """Bytes of `elements` elements, which must be whole blocks."""
        return elements // self.block_size * self.block_bytes


T = TensorType

GGML_TYPES: dict[int, TensorType] = {
    0: T.F32,
    1: T.F16,
    2: T.Q4_0,
    3: T.Q4_1,
    6: T.Q5_0,
    7: T.Q5_1,
    8: T.Q8_0,
    9: T.Q8_1,
    10: T.Q2_K,
    11: T.Q3_K,
    12: T.Q4_K,
    13: T.Q5_K,
    14: T.Q6_K,
    15: T.Q8_K,
    16: T.IQ2_XXS,
    17: T.IQ2_XS,
    18: T.IQ3_XXS,
    19: T.IQ1_S,
    20: T.IQ4_NL,
    21: T.IQ3_S,
    22: T.IQ2_S,
    23: T.IQ4_XS,
    24: T.I8,
    25: T.I16,
    26: T.I32,
    27: T.I64,
    28: T.F64,
    29: T.IQ1_M,
    30: T.BF16,
    34: T.TQ1_0,
    35: T.TQ2_0,
    39: T.MXFP4,
    40: T.NVFP4,
    41: T.Q1_0,
}
"""Type number in a GGUF file -> encoding."""

REMOVED_GGML_TYPES: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Numbers that the GGUF format gave up; such files must be converted again."""

SAFETENSORS_TYPES: dict[str, TensorType] = {
    kind.value: kind
    for kind in (
        *(T.F32, T.F16, T.BF16, T.F64, T.I8, T.I16, T.I32, T.I64, T.BOOL, T.U8, T.U16, T.U32),
        *(T.U64, T.C64, T.F8_E4M3, T.F8_E5M2, T.F8_E8M0, T.F8_E4M3FNUZ, T.F8_E5M2FNUZ),
        *(T.F6_E2M3, T.F6_E3M2, T.F4),
    )
}
"""`dtype` of a safetensors header -> encoding."""
