// Attention's inner loops for AVX2, FMA and F16C: tiles of rows by 16 positions or dimensions.
#include <immintrin.h>

#include <cstring>
#include <limits>

#include "attention/kernels.h"
#include "math/exp_avx2.h"
#include "math/lanes_avx2.h"

namespace octavo {

namespace {

// Eight numbers of the cache's type from `from[index]` on.
template <KvType type>
inline __m256 load(const void* from, int64_t index) {
    if (type == KvType::f32) return _mm256_loadu_ps(static_cast<const float*>(from) + index);
    const uint16_t* halves = static_cast<const uint16_t*>(from) + index;
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves));
    if (type == KvType::f16) return _mm256_cvtph_ps(eight);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
}

void widen(KvType type, const void* from, int64_t count, float* to) {
    if (type == KvType::f32) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 wide =
            type == KvType::f16 ? load<KvType::f16>(from, i) : load<KvType::bf16>(from, i);
        _mm256_storeu_ps(to + i, wide);
    }
}

// Rounds bf16 half to even; NaN stays one.
__m128i bf16_from_floats(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_blendv_epi8(rounded, quiet, is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
}

void narrow(KvType type, const float* from, int64_t count, void* to) {
    if (type == KvType::f32) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
        return;
    }
    char* out = static_cast<char*>(to);
    for (int64_t i = 0; i < count; i += 8) {
        const int64_t left = count - i < 8 ? count - i : 8;
        float eight[8] = {};
        std::memcpy(eight, from + i, static_cast<size_t>(left) * sizeof(float));
        const __m256 values = _mm256_loadu_ps(eight);
        const __m128i halves = type == KvType::f16
                                   ? _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT)
                                   : bf16_from_floats(values);
        alignas(16) char bytes[16];
        _mm_store_si128(reinterpret_cast<__m128i*>(bytes), halves);
        std::memcpy(out + 2 * i, bytes, static_cast<size_t>(2 * left));
    }
}

// `rows` by 8 * groups positions, rows * groups accumulators. Loops over arrays of registers must
// be unrolled early, or GCC keeps the accumulators on the stack.
template <KvType type, int rows, int groups>
void score_tile(const float* const* q, const void* keys, int64_t first, int dim, float scale,
                float* out, int64_t ld) {
    __m256 acc[rows][groups];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) acc[r][g] = _mm256_setzero_ps();
    }
    for (int d = 0; d < dim; d++) {
        __m256 key[groups];
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) key[g] = load<type>(keys, first + 8 * (g * dim + d));
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const __m256 query = _mm256_broadcast_ss(q[r] + d);
#pragma GCC unroll 8
            for (int g = 0; g < groups; g++) acc[r][g] = _mm256_fmadd_ps(query, key[g], acc[r][g]);
        }
    }
    const __m256 factor = _mm256_set1_ps(scale);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) {
            _mm256_storeu_ps(out + r * ld + 8 * g, _mm256_mul_ps(acc[r][g], factor));
        }
    }
}

template <KvType type, int rows>
void score_rows(const float* const* q, const void* keys, int groups, int dim, float scale,
                float* out, int64_t ld) {
    // Few rows need more groups a tile, or the multiply-adds would wait for each other.
    constexpr int wide = rows == 1 ? 8 : rows == 2 ? 6 : rows == 3 ? 4 : rows == 4 ? 3 : 2;
    int g = 0;
    for (; g + wide <= groups; g += wide) {
        score_tile<type, rows, wide>(q, keys, 8 * g * dim, dim, scale, out + 8 * g, ld);
    }
    for (; g < groups; g++) {
        score_tile<type, rows, 1>(q, keys, 8 * g * dim, dim, scale, out + 8 * g, ld);
    }
}

template <KvType type>
void score(const float* const* q, int rows, const void* keys, int groups, int dim, float scale,
           float* out, int64_t ld) {
    switch (rows) {
        case 1:
            return score_rows<type, 1>(q, keys, groups, dim, scale, out, ld);
        case 2:
            return score_rows<type, 2>(q, keys, groups, dim, scale, out, ld);
        case 3:
            return score_rows<type, 3>(q, keys, groups, dim, scale, out, ld);
        case 4:
            return score_rows<type, 4>(q, keys, groups, dim, scale, out, ld);
        case 5:
            return score_rows<type, 5>(q, keys, groups, dim, scale, out, ld);
        default:
            return score_rows<type, 6>(q, keys, groups, dim, scale, out, ld);
    }
}

void scores(const float* const* q, int rows, KvType type, const void* keys, int groups, int dim,
            float scale, float* out, int64_t ld) {
    switch (type) {
        case KvType::f32:
            return score<KvType::f32>(q, rows, keys, groups, dim, scale, out, ld);
        case KvType::f16:
            return score<KvType::f16>(q, rows, keys, groups, dim, scale, out, ld);
        case KvType::bf16:
            return score<KvType::bf16>(q, rows, keys, groups, dim, scale, out, ld);
    }
}

// All ones where begin <= i + lane < end.
__m256 inside(int i, int begin, int end) {
    const int below = begin > i ? begin - i : 0;
    const int count = end - i < 8 ? end - i : 8;
    return _mm256_andnot_ps(first_lanes_avx2(below), first_lanes_avx2(count));
}

float weigh(float* scores, int begin, int end, float* max) {
    const __m256 lowest = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
    const int first = begin & ~7;
    __m256 highest = lowest;
    for (int i = first; i < end; i += 8) {
        const __m256 valid = inside(i, begin, end);
        const __m256 some = _mm256_blendv_ps(lowest, _mm256_loadu_ps(scores + i), valid);
        highest = _mm256_max_ps(some, highest);
    }
    *max = max_lanes_avx2(highest);
    highest = _mm256_set1_ps(*max);
    __m256 lanes = _mm256_setzero_ps();
    for (int i = first; i < end; i += 8) {
        const __m256 valid = inside(i, begin, end);
        const __m256 weight = exp_f32_avx2(_mm256_sub_ps(_mm256_loadu_ps(scores + i), highest));
        const __m256 kept = _mm256_and_ps(weight, valid);
        _mm256_storeu_ps(scores + i, kept);
        lanes = _mm256_add_ps(lanes, kept);
    }
    return add_lanes_avx2(lanes);
}

// `rows` by 8 * parts dimensions.
template <KvType type, int rows, int parts>
void accumulate_tile(const float* weights, int64_t ld, const void* values, int64_t first, int begin,
                     int end, int dim, float* acc, int64_t ld_acc) {
    __m256 sum[rows][parts];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int p = 0; p < parts; p++) sum[r][p] = _mm256_loadu_ps(acc + r * ld_acc + 8 * p);
    }
    for (int i = begin; i < end; i++) {
        __m256 value[parts];
#pragma GCC unroll 8
        for (int p = 0; p < parts; p++) value[p] = load<type>(values, first + i * dim + 8 * p);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const __m256 weight = _mm256_broadcast_ss(weights + r * ld + i);
#pragma GCC unroll 8
            for (int p = 0; p < parts; p++) {
                sum[r][p] = _mm256_fmadd_ps(weight, value[p], sum[r][p]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int p = 0; p < parts; p++) _mm256_storeu_ps(acc + r * ld_acc + 8 * p, sum[r][p]);
    }
}

template <KvType type, int rows>
void accumulate_rows(const float* weights, int64_t ld, const void* values, int begin, int end,
                     int dim, float* acc, int64_t ld_acc) {
    constexpr int wide = rows == 1 ? 8 : rows <= 3 ? 4 : 2;
    int d = 0;
    for (; d + 8 * wide <= dim; d += 8 * wide) {
        accumulate_tile<type, rows, wide>(weights, ld, values, d, begin, end, dim, acc + d, ld_acc);
    }
    for (; d < dim; d += 8) {
        accumulate_tile<type, rows, 1>(weights, ld, values, d, begin, end, dim, acc + d, ld_acc);
    }
}

template <KvType type>
void add_up(const float* weights, int64_t ld, int rows, const void* values, int begin, int end,
            int dim, float* acc, int64_t ld_acc) {
    switch (rows) {
        case 1:
            return accumulate_rows<type, 1>(weights, ld, values, begin, end, dim, acc, ld_acc);
        case 2:
            return accumulate_rows<type, 2>(weights, ld, values, begin, end, dim, acc, ld_acc);
        case 3:
            return accumulate_rows<type, 3>(weights, ld, values, begin, end, dim, acc, ld_acc);
        case 4:
            return accumulate_rows<type, 4>(weights, ld, values, begin, end, dim, acc, ld_acc);
        case 5:
            return accumulate_rows<type, 5>(weights, ld, values, begin, end, dim, acc, ld_acc);
        default:
            return accumulate_rows<type, 6>(weights, ld, values, begin, end, dim, acc, ld_acc);
    }
}

void accumulate(const float* weights, int64_t ld, int rows, KvType type, const void* values,
                int begin, int end, int dim, float* acc, int64_t ld_acc) {
    switch (type) {
        case KvType::f32:
            return add_up<KvType::f32>(weights, ld, rows, values, begin, end, dim, acc, ld_acc);
        case KvType::f16:
            return add_up<KvType::f16>(weights, ld, rows, values, begin, end, dim, acc, ld_acc);
        case KvType::bf16:
            return add_up<KvType::bf16>(weights, ld, rows, values, begin, end, dim, acc, ld_acc);
    }
}

void blend(float* total, float keep, const float* part, float take, int dim) {
    const __m256 a = _mm256_set1_ps(keep), b = _mm256_set1_ps(take);
    for (int d = 0; d < dim; d += 8) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(part + d), b);
        _mm256_storeu_ps(total + d, _mm256_fmadd_ps(_mm256_loadu_ps(total + d), a, scaled));
    }
}

}  // namespace

extern const AttentionKernels attention_avx2 = {widen, narrow, scores, weigh, accumulate, blend};

}  // namespace octavo
