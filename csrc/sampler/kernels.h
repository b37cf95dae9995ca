// The sampler's passes over a whole row, in a scalar and an AVX2 form with equal results.
#pragma once

#include <cstdint>

#include "linear/isa.h"

namespace octavo {

// Weights are summed in blocks of so many, each over lanes; the blocks are added in order.
constexpr int64_t sum_block = 64;

struct SamplerKernels {
    // The largest number; false if one is NaN or +infinity.
    bool (*highest)(const float* row, int64_t count, float* max);

    // The lowest index from `begin` on whose number is at least `value`; `count` if there is none.
    int64_t (*next)(const float* row, int64_t begin, int64_t count, float value);

    // How many are larger than `value`.
    int64_t (*count_above)(const float* row, int64_t count, float value);

    // Sum of exp(row[i] - highest), each exp in fp32, added in fp64 over eight lanes.
    double (*sum_exp)(const float* row, int64_t count, float highest);

    // weights[i] = exp((row[i] - highest) / temperature), in fp64.
    void (*weights)(const float* row, int64_t count, double highest, double temperature,
                    double* weights);

    // sums[b] = sum of the weights of block b over eight lanes; ceil(count / sum_block) of them.
    void (*block_sums)(const double* weights, int64_t count, double* sums);
};

const SamplerKernels& sampler_kernels(Isa isa);

extern const SamplerKernels sampler_scalar;
extern const SamplerKernels sampler_avx2;

}  // namespace octavo
