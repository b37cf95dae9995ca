// The scalar form of the linear kernels of q types: the specification that every other form equals
// bit for bit. One output at a time, columns ascending; see linear.h for the sums.
#include <cmath>

#include "linear/tile_block.h"
#include "linear/tile_kernel.h"
#include "quant/blocks.h"
#include "quant/half.h"

namespace octavo {

namespace {

int dot(const int8_t* values, const int8_t* q) {
    int sum = 0;
    for (int k = 0; k < 16; k++) sum += values[k] * q[k];
    return sum;
}

// Adds 32 columns to a sum. bytes: of the part; values: its integers; d, m: the block's halves.
float add_part(WeightType type, float d, float m, const uint8_t* bytes, const int8_t* values,
               const Q8Block& x, float acc) {
    const int dots[2] = {dot(values, x.q), dot(values + 16, x.q + 16)};

    if (type == WeightType::q3_k || type == WeightType::q6_k) {
        const int scaled =
            static_cast<int8_t>(bytes[0]) * dots[0] + static_cast<int8_t>(bytes[1]) * dots[1];
        return std::fma(d * x.scale, static_cast<float>(scaled), acc);
    }
    if (type == WeightType::q2_k) {
        const int scaled = (bytes[0] & 15) * dots[0] + (bytes[1] & 15) * dots[1];
        const int minimum = (bytes[0] >> 4) * x.half_sums[0] + (bytes[1] >> 4) * x.half_sums[1];
        acc = std::fma(d * x.scale, static_cast<float>(scaled), acc);
        return std::fma(-m * x.scale, static_cast<float>(minimum), acc);
    }
    const Scales by = scales_of(type, d, m, bytes, 0);
    acc = std::fma(by.scale * x.scale, static_cast<float>(dots[0] + dots[1]), acc);
    return has_minimum(type) ? std::fma(by.minimum, x.scaled_sum, acc) : acc;
}

// One row of a tile, all tokens of the call: a block is taken apart once.
void add_row(const TileInput& in, const uint8_t* tile, int row, int tokens, float* acc) {
    const QFormat format = format_of(in.type);
    for (int t = 0; t < tokens; t++) acc[t * tile_rows + row] = 0.0f;
    const Q8Block* x = in.q8;
    for (int64_t k = 0; k < in.cols; k += format.width) {
        float halves[2] = {0.0f, 0.0f};
        for (int i = 0; i < format.halves; i++, tile += lane_halves) {
            halves[i] = float_from_f16(load_u16(tile + 2 * row));
        }
        for (int p = 0; p < format.width / block_cols; p++, x++, tile += tile_part_bytes(format)) {
            QPart part;
            load_part(format, tile, row, &part);
            int8_t values[block_cols];
            for (int i = 0; i < block_cols; i++) values[i] = value_of(format, part.codes[i]);
            for (int t = 0; t < tokens; t++) {
                float& sum = acc[t * tile_rows + row];
                sum = add_part(in.type, halves[0], halves[1], part.bytes, values, x[t * in.ld_q8],
                               sum);
            }
        }
    }
}

}  // namespace

void tile_q_scalar(const TileInput& in, int tiles, int tokens, float* acc) {
    for (int i = 0; i < tiles; i++, acc += tokens * tile_rows) {
        const uint8_t* tile = in.tile + static_cast<size_t>(i) * in.tile_bytes;
        for (int row = 0; row < tile_rows; row++) add_row(in, tile, row, tokens, acc);
    }
}

}  // namespace octavo
