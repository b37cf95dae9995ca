// The scalar form of the linear kernels: the specification that every other form equals bit for
// bit. One output at a time, columns ascending; see linear.h for the sums and pack.cpp for layouts.
#include <cmath>
#include <cstring>

#include "linear/linear.h"
#include "linear/tile_kernel.h"
#include "quant/half.h"

namespace octavo {

namespace {

// Runs output(tile, token, row) for every output of the call.
template <typename Output>
void each_output(const TileInput& in, int tiles, int tokens, float* acc, Output output) {
    for (int tile = 0; tile < tiles; tile++) {
        const uint8_t* packed = in.tile + static_cast<size_t>(tile) * in.tile_bytes;
        for (int token = 0; token < tokens; token++) {
            for (int row = 0; row < tile_rows; row++) *acc++ = output(packed, token, row);
        }
    }
}

float load_f32(const uint8_t* bytes) {
    float value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}
float load_f16(const uint8_t* bytes) { return float_from_f16(load_u16(bytes)); }
float load_bf16(const uint8_t* bytes) { return float_from_bf16(load_u16(bytes)); }

template <int value_bytes, float (*load)(const uint8_t*)>
void tile_float(const TileInput& in, int tiles, int tokens, float* acc) {
    each_output(in, tiles, tokens, acc, [&](const uint8_t* tile, int token, int row) {
        const float* x = in.x + token * in.ld_x;
        float sum = 0.0f;
        for (int64_t k = 0; k < in.cols; k++) {
            sum = std::fma(load(tile + (k * tile_rows + row) * value_bytes), x[k], sum);
        }
        return sum;
    });
}

// The dot product of 32 columns of 4 bits with a token's block: unsigned nibbles less `excess`.
int dot_nibbles(const uint8_t* columns, int row, const int8_t* q, int excess) {
    int dot = 0;
    for (int i = 0; i < 16; i++) {
        const int byte = columns[i / 4 * 32 + row * 4 + i % 4];
        dot += ((byte & 15) - excess) * q[i] + ((byte >> 4) - excess) * q[i + 16];
    }
    return dot;
}

int dot_bytes(const uint8_t* columns, int row, const int8_t* q) {
    int dot = 0;
    for (int k = 0; k < block_cols; k++) {
        dot += static_cast<int8_t>(columns[k / 4 * 32 + row * 4 + k % 4]) * q[k];
    }
    return dot;
}

}  // namespace

void tile_f32_scalar(const TileInput& in, int tiles, int tokens, float* acc) {
    tile_float<4, load_f32>(in, tiles, tokens, acc);
}

void tile_f16_scalar(const TileInput& in, int tiles, int tokens, float* acc) {
    tile_float<2, load_f16>(in, tiles, tokens, acc);
}

void tile_bf16_scalar(const TileInput& in, int tiles, int tokens, float* acc) {
    tile_float<2, load_bf16>(in, tiles, tokens, acc);
}

void tile_q4_0_scalar(const TileInput& in, int tiles, int tokens, float* acc) {
    each_output(in, tiles, tokens, acc, [&](const uint8_t* block, int token, int row) {
        const Q8Block* x = in.q8 + token * in.ld_q8;
        float sum = 0.0f;
        for (int64_t b = 0; b < in.cols / block_cols; b++, x++, block += 16 + 128) {
            const float scale = load_f16(block + 2 * row) * x->scale;
            sum = std::fma(scale, static_cast<float>(dot_nibbles(block + 16, row, x->q, 8)), sum);
        }
        return sum;
    });
}

void tile_q4_1_scalar(const TileInput& in, int tiles, int tokens, float* acc) {
    each_output(in, tiles, tokens, acc, [&](const uint8_t* block, int token, int row) {
        const Q8Block* x = in.q8 + token * in.ld_q8;
        float sum = 0.0f;
        for (int64_t b = 0; b < in.cols / block_cols; b++, x++, block += 32 + 128) {
            const float scale = load_f16(block + 2 * row) * x->scale;
            const float minimum = load_f16(block + 16 + 2 * row);
            sum = std::fma(scale, static_cast<float>(dot_nibbles(block + 32, row, x->q, 0)), sum);
            sum = std::fma(minimum, x->scaled_sum, sum);
        }
        return sum;
    });
}

void tile_q8_0_scalar(const TileInput& in, int tiles, int tokens, float* acc) {
    each_output(in, tiles, tokens, acc, [&](const uint8_t* block, int token, int row) {
        const Q8Block* x = in.q8 + token * in.ld_q8;
        float sum = 0.0f;
        for (int64_t b = 0; b < in.cols / block_cols; b++, x++, block += 16 + 256) {
            const float scale = load_f16(block + 2 * row) * x->scale;
            sum = std::fma(scale, static_cast<float>(dot_bytes(block + 16, row, x->q)), sum);
        }
        return sum;
    });
}

}  // namespace octavo
