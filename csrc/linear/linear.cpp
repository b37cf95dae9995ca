// linear_tiles: chooses the kernel, walks tokens and tiles in an order that suits the caches, adds
// the bias. Which tokens and tiles share a kernel call changes no bit of the result.
#include "linear/linear.h"

#include <algorithm>
#include <cstring>

#include "linear/tile_kernel.h"

namespace octavo {

namespace {

#if defined(__x86_64__)
TileKernels avx2_kernels_for(WeightType type) {
    switch (type) {
        case WeightType::f32:
            return {tile_f32_avx2, 6, 2, 4};
        case WeightType::f16:
            return {tile_f16_avx2, 6, 2, 4};
        case WeightType::bf16:
            return {tile_bf16_avx2, 6, 2, 4};
        case WeightType::q4_0:
            return {tile_q4_0_avx2, 6, 1, 1};
        case WeightType::q4_1:
            return {tile_q4_1_avx2, 6, 1, 1};
        case WeightType::q5_0:
            return {tile_q5_0_avx2, 6, 1, 1};
        case WeightType::q5_1:
            return {tile_q5_1_avx2, 6, 1, 1};
        case WeightType::q8_0:
            return {tile_q8_0_avx2, 6, 1, 1};
        case WeightType::q2_k:
            return {tile_q2_k_avx2, 6, 1, 1};
        case WeightType::q3_k:
            return {tile_q3_k_avx2, 6, 1, 1};
        case WeightType::q4_k:
            return {tile_q4_k_avx2, 6, 1, 1};
        case WeightType::q5_k:
            return {tile_q5_k_avx2, 6, 1, 1};
        case WeightType::q6_k:
            return {tile_q6_k_avx2, 6, 1, 1};
        case WeightType::iq4_nl:
            return {tile_iq4_nl_avx2, 6, 1, 1};
        case WeightType::iq4_xs:
            return {tile_iq4_xs_avx2, 6, 1, 1};
        case WeightType::mxfp4:
            break;
    }
    return {tile_mxfp4_avx2, 6, 1, 1};
}
#endif

TileKernels kernels_for(WeightType type, Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return avx2_kernels_for(type);
#endif
    (void)isa;
    switch (type) {
        case WeightType::f32:
            return {tile_f32_scalar, 4, 1, 1};
        case WeightType::f16:
            return {tile_f16_scalar, 4, 1, 1};
        case WeightType::bf16:
            return {tile_bf16_scalar, 4, 1, 1};
        default:
            return {tile_q_scalar, 4, 1, 1};
    }
}

// The most tokens for one sweep over the tiles: enough that weights are not fetched too often, few
// enough that the tokens' rows stay in the second-level cache beside them.
int64_t most_tokens_of_sweep(const PackedLinear& weights, int terms) {
    const int64_t row =
        reads_q8(weights.type())
            ? terms * q8_stride(weights.cols()) * static_cast<int64_t>(sizeof(Q8Block))
            : weights.cols() * static_cast<int64_t>(sizeof(float));
    return std::clamp((int64_t{192} << 10) / row, int64_t{16}, int64_t{64});
}

// How many of `remaining` to take next, at most `most`, so that all turns are alike: 7 are taken as
// 4 and 3, for a kernel call of one token costs nearly as much as one of two.
int64_t even_share(int64_t remaining, int64_t most) {
    const int64_t turns = (remaining + most - 1) / most;
    return (remaining + turns - 1) / turns;
}

// Adds the second term's sums of each tile and token to the first's: 8 sums, then 8 more, become 8.
void add_terms(float* acc, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float* terms = acc + 2 * tile_rows * i;
        for (int64_t row = 0; row < tile_rows; row++) {
            acc[tile_rows * i + row] = terms[row] + terms[tile_rows + row];
        }
    }
}

// Writes the sums of one tile and token to their row, those of padding rows apart.
void store(const float* acc, const float* bias, int64_t row, int64_t rows, float* out) {
    if (row + tile_rows <= rows) {
        if (!bias) {
            std::memcpy(out + row, acc, tile_rows * sizeof(float));
        } else {
            for (int64_t i = 0; i < tile_rows; i++) out[row + i] = acc[i] + bias[row + i];
        }
        return;
    }
    for (int64_t i = 0; row + i < rows; i++) out[row + i] = bias ? acc[i] + bias[row + i] : acc[i];
}

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    // Every CPU with AVX2 has F16C, but a hypervisor may hide it.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c")) {
        return Isa::avx2;
    }
#endif
    return Isa::scalar;
}

void linear_tiles(const PackedLinear& weights, const Activations& input, int64_t token_begin,
                  int64_t token_end, int64_t tile_begin, int64_t tile_end, float* out,
                  int64_t ld_out, const float* bias, Isa isa) {
    const TileKernels kernels = kernels_for(weights.type(), isa);
    // To a kernel a token of two terms is two tokens.
    const int terms = reads_q8(weights.type()) ? input.terms : 1;
    const int64_t most_of_sweep = most_tokens_of_sweep(weights, terms);
    const int64_t most_of_call = kernels.tokens / terms;
    const int64_t most_tiles =
        token_end - token_begin == 1 ? kernels.tiles_of_one_token : kernels.tiles;
    alignas(64) float acc[max_tile_tokens * max_tiles * tile_rows];

    TileInput in{};
    in.type = weights.type();
    in.tile_bytes = weights.tile_bytes();
    in.cols = weights.cols();
    in.ld_x = input.ld_x;
    in.ld_q8 = q8_stride(weights.cols());
    for (int64_t first = token_begin, last; first < token_end; first = last) {
        last = first + even_share(token_end - first, most_of_sweep);
        for (int64_t tile = tile_begin; tile < tile_end; tile += most_tiles) {
            const int tiles = static_cast<int>(std::min(most_tiles, tile_end - tile));
            in.tile = weights.tile(tile);
            for (int64_t token = first; token < last;) {
                const int tokens = static_cast<int>(even_share(last - token, most_of_call));
                if (input.x) in.x = input.x + token * input.ld_x;
                if (input.q8) in.q8 = input.q8 + token * terms * in.ld_q8;
                kernels.run(in, tiles, tokens * terms, acc);
                if (terms == 2) add_terms(acc, static_cast<int64_t>(tiles) * tokens);
                const float* sums = acc;
                for (int64_t row = tile * tile_rows; row < (tile + tiles) * tile_rows;
                     row += tile_rows) {
                    for (int64_t j = 0; j < tokens; j++, sums += tile_rows) {
                        store(sums, bias, row, weights.rows(), out + (token + j) * ld_out);
                    }
                }
                token += tokens;
            }
        }
    }
}

}  // namespace octavo
