// Weight encodings, and decoding one row of a file to fp32 (embeddings, tests).
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight_type.h"

namespace octavo {

// Columns a block spans: 32 or 256, or 1 for the floating-point types.
int64_t block_width(WeightType type);

// Bytes of a row of `cols` columns as it lies in a file; cols is a multiple of block_width(type).
size_t row_bytes(WeightType type, int64_t cols);

// True if the kernels of this type read Activations::q8, false if they read Activations::x.
bool reads_q8(WeightType type);

// Decodes a raw row of a GGUF or safetensors file, with the rounding of octavo.weights.quants:
// element by element, no fused multiply-add.
void decode_row(WeightType type, const uint8_t* raw_row, int64_t cols, float* out);

}  // namespace octavo
