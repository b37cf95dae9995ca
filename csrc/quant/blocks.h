// One row's block of a q type, taken apart: the form between a file's bytes, a tile's and numbers.
#pragma once

#include <cstdint>

#include "quant/formats.h"

namespace octavo {

// 32 columns of a block; see QFormat for what the bytes are.
struct QPart {
    uint8_t bytes[2];
    uint8_t codes[block_cols];
};

struct QBlock {
    uint16_t halves[2];  // fp16: d, m
    QPart parts[8];      // width / 32 of them
};

// Reads a block of a GGUF file.
void take_apart(WeightType type, const uint8_t* bytes, QBlock* block);

// How integers become numbers: scale * integer, plus the minimum of the types that have one.
struct Scales {
    float scale;
    float minimum;
};

bool has_minimum(WeightType type);

// Of the columns 16 * half .. of a part, d and m being the halves of its block. The products are
// exact: 11 bits by 8 at most.
Scales scales_of(WeightType type, float d, float m, const uint8_t* part_bytes, int half);

// Decodes the columns of a block: element by element, no fused multiply-add.
void decode_block(WeightType type, const QBlock& block, float* out);

}  // namespace octavo
