// The q types as data: what a block holds, whichever way it is laid out (blocks.h: in a file;
// linear/tile_block.h: in a tile).
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight_type.h"

namespace octavo {

// A block is one row's `width` columns: fp16 numbers, then for each part of 32 columns some bytes
// and 32 codes. The bytes of a part are
//
//     q4_K, q5_K   scale, minimum                      0..63
//     q3_K, q6_K   scales of 16 columns each           signed
//     q2_K         the same, low nibble the scale, high nibble the minimum
//     iq4_xs       scale                               signed
//     mxfp4        exponent
struct QFormat {
    int width;             // columns of a block: 32 or 256
    int file_bytes;        // of a block
    int halves;            // fp16 numbers: d (scale), then m (minimum)
    int part_bytes;        // bytes of a part
    int low_bits;          // of a code; in a tile they lie apart from
    int high_bits;         // these
    int excess;            // a column's integer is its code less this,
    const int8_t* values;  // or values[code]
};

constexpr int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

// Twice the values of FP4 (E2M1).
constexpr int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Static: translation units for different CPUs may not share one copy.
static constexpr QFormat format_of(WeightType type) {
    switch (type) {
        case WeightType::q4_0:
            return {32, 18, 1, 0, 4, 0, 8, nullptr};
        case WeightType::q4_1:
            return {32, 20, 2, 0, 4, 0, 0, nullptr};
        case WeightType::q5_0:
            return {32, 22, 1, 0, 4, 1, 16, nullptr};
        case WeightType::q5_1:
            return {32, 24, 2, 0, 4, 1, 0, nullptr};
        case WeightType::q8_0:
            return {32, 34, 1, 0, 8, 0, 0, nullptr};
        case WeightType::q2_k:
            return {256, 84, 2, 2, 2, 0, 0, nullptr};
        case WeightType::q3_k:
            return {256, 110, 1, 2, 2, 1, 4, nullptr};
        case WeightType::q4_k:
            return {256, 144, 2, 2, 4, 0, 0, nullptr};
        case WeightType::q5_k:
            return {256, 176, 2, 2, 4, 1, 0, nullptr};
        case WeightType::q6_k:
            return {256, 210, 1, 2, 4, 2, 32, nullptr};
        case WeightType::iq4_nl:
            return {32, 18, 1, 0, 4, 0, 0, iq4_values};
        case WeightType::iq4_xs:
            return {256, 136, 1, 1, 4, 0, 0, iq4_values};
        case WeightType::mxfp4:
            return {32, 17, 0, 1, 4, 0, 0, mxfp4_values};
        case WeightType::f32:
        case WeightType::f16:
        case WeightType::bf16:
            break;
    }
    return {};  // not q types: not asked for
}

// The integer that a code stands for; of 8 bits the code is that integer's own byte.
static constexpr int8_t value_of(const QFormat& format, uint8_t code) {
    return format.values ? format.values[code] : static_cast<int8_t>(code - format.excess);
}

}  // namespace octavo
