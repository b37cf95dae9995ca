// What the driver of linear_tiles and the kernels of each instruction set agree on. Plain data
// only: the kernels' translation units are compiled for other CPUs, and an inline function that
// they share with the rest could be linked in their form.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/activations.h"
#include "quant/weight_type.h"

namespace octavo {

constexpr int tile_rows = 8;          // rows interleaved in a tile; one SIMD lane each
constexpr int prefetch_bytes = 3072;  // how far ahead of the multiplication weights are fetched
constexpr int max_tile_tokens = 6;    // tokens and tiles one kernel call takes at most
constexpr int max_tiles = 4;

struct TileInput {
    WeightType type;
    const uint8_t* tile;  // the first of `tiles` packed tiles, tile_bytes apart
    size_t tile_bytes;
    int64_t cols;
    const float* x;  // row of the first of `tokens` tokens, for floating-point weights; ld_x apart
    int64_t ld_x;
    const Q8Block* q8;  // the same for q types
    int64_t ld_q8;
};

// Writes acc[(tile * tokens + token) * 8 + row], the sums without bias.
using TileKernel = void (*)(const TileInput& in, int tiles, int tokens, float* acc);

struct TileKernels {
    TileKernel run;
    int tokens;              // the most tokens a call takes
    int tiles;               // the most tiles a call takes with several tokens
    int tiles_of_one_token;  // and with one
};

void tile_f32_scalar(const TileInput& in, int tiles, int tokens, float* acc);
void tile_f16_scalar(const TileInput& in, int tiles, int tokens, float* acc);
void tile_bf16_scalar(const TileInput& in, int tiles, int tokens, float* acc);
void tile_q_scalar(const TileInput& in, int tiles, int tokens, float* acc);  // of every q type

void tile_f32_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_f16_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_bf16_avx2(const TileInput& in, int tiles, int tokens, float* acc);

// By family; each of 1 to 6 tokens.
void tile_q4_0_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_q4_1_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_q4_k_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_mxfp4_avx2(const TileInput& in, int tiles, int tokens, float* acc);

void tile_q8_0_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_iq4_nl_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_iq4_xs_avx2(const TileInput& in, int tiles, int tokens, float* acc);

void tile_q5_0_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_q5_1_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_q5_k_avx2(const TileInput& in, int tiles, int tokens, float* acc);

void tile_q2_k_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_q3_k_avx2(const TileInput& in, int tiles, int tokens, float* acc);
void tile_q6_k_avx2(const TileInput& in, int tiles, int tokens, float* acc);

}  // namespace octavo
