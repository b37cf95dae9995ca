// The scalar form of the linear kernels of floating-point weights: the specification that every
// other form equals bit for bit. One output at a time, columns ascending.
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

}  // namespace octavo
