// The sampler's passes for AVX2.
#include <limits>

#include "math/exp_avx2.h"
#include "math/lanes_avx2.h"
#include "sampler/kernels.h"

namespace octavo {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Eight numbers from row[i] on, those behind `count` replaced by `other`.
__m256 load(const float* row, int64_t i, int64_t count, __m256 other) {
    if (i + 8 <= count) return _mm256_loadu_ps(row + i);
    const __m256 valid = first_lanes_avx2(static_cast<int>(count - i));
    const __m256 some = _mm256_maskload_ps(row + i, _mm256_castps_si256(valid));
    return _mm256_blendv_ps(other, some, valid);
}

bool highest(const float* row, int64_t count, float* max) {
    const __m256 lowest = _mm256_set1_ps(-infinity), above = _mm256_set1_ps(infinity);
    __m256 found[4] = {lowest, lowest, lowest, lowest};
    __m256 wrong = _mm256_setzero_ps();
    for (int64_t i = 0; i < count; i += 32) {
        for (int k = 0; k < 4 && i + 8 * k < count; k++) {
            const __m256 some = load(row, i + 8 * k, count, lowest);
            wrong = _mm256_or_ps(wrong, _mm256_cmp_ps(some, above, _CMP_NLT_UQ));
            found[k] = _mm256_max_ps(some, found[k]);
        }
    }
    const __m256 pair = _mm256_max_ps(found[0], found[1]);
    *max = max_lanes_avx2(_mm256_max_ps(pair, _mm256_max_ps(found[2], found[3])));
    return _mm256_movemask_ps(wrong) == 0;
}

int64_t next(const float* row, int64_t begin, int64_t count, float value) {
    const __m256 limit = _mm256_set1_ps(value);
    const __m256 nothing = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
    for (int64_t i = begin; i < count; i += 8) {
        const __m256 enough = _mm256_cmp_ps(load(row, i, count, nothing), limit, _CMP_GE_OQ);
        const int bits = _mm256_movemask_ps(enough);
        if (bits != 0) return i + __builtin_ctz(static_cast<unsigned>(bits));
    }
    return count;
}

int64_t count_above(const float* row, int64_t count, float value) {
    const __m256 limit = _mm256_set1_ps(value), lowest = _mm256_set1_ps(-infinity);
    int64_t above = 0;
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 more = _mm256_cmp_ps(load(row, i, count, lowest), limit, _CMP_GT_OQ);
        above += __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(more)));
    }
    return above;
}

// Lanes 0 to 3 and 4 to 7 in the order of add_lanes.
double add_lanes_wide(__m256d low, __m256d high) {
    const __m256d pairs = _mm256_add_pd(low, high);
    const __m128d sum = _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
    return _mm_cvtsd_f64(_mm_add_sd(sum, _mm_unpackhi_pd(sum, sum)));
}

double sum_exp(const float* row, int64_t count, float highest) {
    const __m256 max = _mm256_set1_ps(highest), lowest = _mm256_set1_ps(-infinity);
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 value = exp_f32_avx2(_mm256_sub_ps(load(row, i, count, lowest), max));
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(value)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(value, 1)));
    }
    return add_lanes_wide(low, high);
}

void weights(const float* row, int64_t count, double highest, double temperature, double* weights) {
    const __m256d max = _mm256_set1_pd(highest), divisor = _mm256_set1_pd(temperature);
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 some = load(row, i, count, _mm256_set1_ps(-infinity));
        for (int half = 0; half < 2; half++) {
            const __m128 four =
                half == 0 ? _mm256_castps256_ps128(some) : _mm256_extractf128_ps(some, 1);
            const __m256d scaled =
                _mm256_div_pd(_mm256_sub_pd(_mm256_cvtps_pd(four), max), divisor);
            const __m256d value = exp_f64_avx2(scaled);
            const int64_t at = i + 4 * half;
            if (at + 4 <= count) {
                _mm256_storeu_pd(weights + at, value);
            } else if (at < count) {
                double rest[4];
                _mm256_storeu_pd(rest, value);
                for (int64_t k = at; k < count; k++) weights[k] = rest[k - at];
            }
        }
    }
}

void block_sums(const double* weights, int64_t count, double* sums) {
    for (int64_t begin = 0; begin < count; begin += sum_block) {
        const int64_t end = begin + sum_block < count ? begin + sum_block : count;
        __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
        int64_t i = begin;
        for (; i + 8 <= end; i += 8) {
            low = _mm256_add_pd(low, _mm256_loadu_pd(weights + i));
            high = _mm256_add_pd(high, _mm256_loadu_pd(weights + i + 4));
        }
        if (i < end) {
            double rest[8] = {};
            for (int64_t k = i; k < end; k++) rest[k - i] = weights[k];
            low = _mm256_add_pd(low, _mm256_loadu_pd(rest));
            high = _mm256_add_pd(high, _mm256_loadu_pd(rest + 4));
        }
        sums[begin / sum_block] = add_lanes_wide(low, high);
    }
}

}  // namespace

extern const SamplerKernels sampler_avx2 = {highest, next,    count_above,
                                            sum_exp, weights, block_sums};

}  // namespace octavo
