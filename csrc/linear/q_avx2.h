// What the AVX2 kernels of q types share: a 32-bit lane a row, four columns at a time, the token's
// four bytes broadcast to all lanes. Integer sums are exact, so their order is free; fp32 sums
// follow linear.h. Only for files compiled with AVX2.
#pragma once

#include <immintrin.h>

#include "linear/tile_block.h"
#include "linear/tile_kernel.h"

namespace octavo {

// Sums stay in the order they are written and in registers: left alone, GCC 12 reassociates the
// int16 additions of a block into a tree, runs out of registers and spills.
#define KEEP(sum) __asm__("" : "+x"(sum))

static inline __m256i broadcast_columns(const Q8Block* x, int k) {
    int columns;
    __builtin_memcpy(&columns, x->q + k, 4);
    return _mm256_set1_epi32(columns);
}

// Two neighbouring int16 in every lane.
static inline __m256i broadcast_pair(const int16_t* numbers) {
    int pair;
    __builtin_memcpy(&pair, numbers, 4);
    return _mm256_set1_epi32(pair);
}

static inline __m256 load_halves(const uint8_t* bytes) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

static inline __m256i load_columns(const uint8_t* bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

// 16 bytes that nibbles name.
static inline __m256i load_table(const int8_t* values) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}

// 8 bytes, one a row, of a part.
static inline __m128i load_row_bytes(const uint8_t* bytes) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
}

static inline __m256 unsigned_floats(__m128i row_bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(row_bytes));
}

static inline __m256 signed_floats(__m128i row_bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(row_bytes));
}

static inline __m256 negative(__m256 numbers) {
    return _mm256_xor_ps(numbers, _mm256_set1_ps(-0.0f));
}

// The codes' bits of four columns, group k/4, from where `bits` bits a code lie (tile_block.h), as
// bits `to` and up of each byte.
template <int bits>
static inline __m256i load_bits(const uint8_t* stored, int group, int to) {
    const __m256i packed = load_columns(stored + 32 * (group % bits));
    const int from = bits * (group / bits);
    const __m256i moved =
        from > to ? _mm256_srli_epi16(packed, from - to) : _mm256_slli_epi16(packed, to - from);
    return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(((1 << bits) - 1) << to)));
}

// Asks for the block that is some blocks ahead: the CPU's own prefetching stops at each page.
template <int bytes>
static inline void prefetch_block(const uint8_t* block) {
    for (int i = 0; i < bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(block) + prefetch_bytes + i, _MM_HINT_T0);
    }
}

// How the integers of a part become numbers, a lane a row; as scales_of in quant/blocks.h.
struct RowScales {
    __m256 scale;
    __m256 minimum;
};

template <WeightType type>
static inline RowScales row_scales(const __m256* halves, const uint8_t* part_bytes) {
    if constexpr (type == WeightType::q4_k || type == WeightType::q5_k) {
        const __m256 scales = unsigned_floats(load_row_bytes(part_bytes));
        const __m256 minimums = unsigned_floats(load_row_bytes(part_bytes + tile_rows));
        return {_mm256_mul_ps(halves[0], scales), negative(_mm256_mul_ps(halves[1], minimums))};
    } else if constexpr (type == WeightType::iq4_xs) {
        const __m256 scales = signed_floats(load_row_bytes(part_bytes));
        return {_mm256_mul_ps(halves[0], scales), _mm256_setzero_ps()};
    } else if constexpr (type == WeightType::mxfp4) {
        // Halved powers of two; the first two exponents are subnormal.
        const __m256i e = _mm256_cvtepu8_epi32(load_row_bytes(part_bytes));
        const __m256i two = _mm256_set1_epi32(2);
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
        const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
        const __m256i is_small = _mm256_cmpgt_epi32(two, e);
        return {_mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, is_small)),
                _mm256_setzero_ps()};
    } else {
        return {halves[0], halves[1]};
    }
}

// Adds the scaled dots of 32 columns to each token's sums.
template <bool has_minimum, int tokens>
static inline void add_scaled(const RowScales& by, const __m256i* dots, const Q8Block* x,
                              int64_t ld, __m256* acc) {
    for (int t = 0; t < tokens; t++) {
        const __m256 both = _mm256_mul_ps(by.scale, _mm256_set1_ps(x[t * ld].scale));
        acc[t] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(dots[t]), acc[t]);
    }
    if (has_minimum) {
        for (int t = 0; t < tokens; t++) {
            const __m256 sum = _mm256_set1_ps(x[t * ld].scaled_sum);
            acc[t] = _mm256_fmadd_ps(by.minimum, sum, acc[t]);
        }
    }
}

// Calls the template `form` of a type and 1 to 6 tokens on each tile.
#define FOR_EACH_TILE(form, type)                                               \
    for (int i = 0; i < tiles; i++, acc += 8 * tokens) {                        \
        const uint8_t* tile = in.tile + static_cast<size_t>(i) * in.tile_bytes; \
        if (tokens == 1) form<WeightType::type, 1>(in, tile, acc);              \
        if (tokens == 2) form<WeightType::type, 2>(in, tile, acc);              \
        if (tokens == 3) form<WeightType::type, 3>(in, tile, acc);              \
        if (tokens == 4) form<WeightType::type, 4>(in, tile, acc);              \
        if (tokens == 5) form<WeightType::type, 5>(in, tile, acc);              \
        if (tokens == 6) form<WeightType::type, 6>(in, tile, acc);              \
    }

}  // namespace octavo
