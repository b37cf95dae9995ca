// The q types with AVX2: a 32-bit lane a row, four columns at a time, the token's four bytes
// broadcast to all lanes. Integer sums are exact, so their order is free; fp32 sums follow
// linear.h.
#include "linear/tile_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo {

namespace {

// Sums stay in the order they are written and in registers: left alone, GCC 12 reassociates the
// int16 additions of a block into a tree, runs out of registers and spills.
#define KEEP(sum) __asm__("" : "+x"(sum))

inline __m256i broadcast_columns(const Q8Block* x, int k) {
    int columns;
    __builtin_memcpy(&columns, x->q + k, 4);
    return _mm256_set1_epi32(columns);
}

inline __m256i broadcast_offset(const Q8Block* x) {
    int pair;
    __builtin_memcpy(&pair, x->offset, 4);
    return _mm256_set1_epi32(pair);
}

inline __m256 load_halves(const uint8_t* bytes) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

inline __m256i load_columns(const uint8_t* bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

// Adds the products of one group of columns to each token's int16 sums.
template <int tokens>
inline void add_group(__m256i nibbles, const Q8Block* x, int64_t ld, int k, __m256i* sums) {
    for (int t = 0; t < tokens; t++) {
        const __m256i products = _mm256_maddubs_epi16(nibbles, broadcast_columns(x + t * ld, k));
        sums[t] = _mm256_add_epi16(sums[t], products);
        KEEP(sums[t]);
    }
}

// Asks for the block that is some blocks ahead: the CPU's own prefetching stops at each page.
template <int bytes>
inline void prefetch_block(const uint8_t* block) {
    for (int i = 0; i < bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(block) + prefetch_bytes + i, _MM_HINT_T0);
    }
}

// Unsigned nibbles times signed bytes give int16 pairs that take a whole block without overflow
// (8 groups * 2 columns * 15 * 127 < 2^15) and are widened once. q4_0 centres its nibbles by
// starting the sums at the token's Q8Block::offset; a wrap on the way is undone, for the true sum
// fits.
template <int tokens, bool has_minimum>
void tile_q4(const TileInput& in, const uint8_t* block, float* out) {
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i ones = _mm256_set1_epi16(1);
    const Q8Block* x = in.q8;
    const int64_t ld = in.ld_q8;
    __m256 acc[tokens];
    for (int t = 0; t < tokens; t++) acc[t] = _mm256_setzero_ps();

    for (int64_t b = in.cols / block_cols; b > 0; b--, x++) {
        const uint8_t* columns = block + (has_minimum ? 32 : 16);
        prefetch_block<(has_minimum ? 32 : 16) + 128>(block);
        __m256i sums[tokens];
        for (int t = 0; t < tokens; t++) {
            sums[t] = has_minimum ? _mm256_setzero_si256() : broadcast_offset(x + t * ld);
        }
#pragma GCC unroll 4
        for (int group = 0; group < 4; group++) {
            const __m256i packed = load_columns(columns + 32 * group);
            add_group<tokens>(_mm256_and_si256(packed, mask), x, ld, 4 * group, sums);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask);
            add_group<tokens>(high, x, ld, 16 + 4 * group, sums);
        }
        const __m256 scale = load_halves(block);
        for (int t = 0; t < tokens; t++) {
            const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums[t], ones));
            const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x[t * ld].scale));
            acc[t] = _mm256_fmadd_ps(both, dot, acc[t]);
        }
        if (has_minimum) {
            const __m256 minimum = load_halves(block + 16);
            for (int t = 0; t < tokens; t++) {
                const __m256 sum = _mm256_set1_ps(x[t * ld].scaled_sum);
                acc[t] = _mm256_fmadd_ps(minimum, sum, acc[t]);
            }
        }
        block = columns + 128;
    }
    for (int t = 0; t < tokens; t++) _mm256_storeu_ps(out + 8 * t, acc[t]);
}

// Bytes are multiplied as |w| * (q with the sign of w): unsigned by signed, as the instruction
// wants. Two such products fill an int16 (2 * 128 * 127 < 2^15), so each group is widened.
template <int tokens>
void tile_q8(const TileInput& in, const uint8_t* block, float* out) {
    const __m256i ones = _mm256_set1_epi16(1);
    const Q8Block* x = in.q8;
    const int64_t ld = in.ld_q8;
    __m256 acc[tokens];
    for (int t = 0; t < tokens; t++) acc[t] = _mm256_setzero_ps();

    for (int64_t b = in.cols / block_cols; b > 0; b--, x++) {
        const uint8_t* columns = block + 16;
        prefetch_block<16 + 256>(block);
        __m256i sums[tokens];
        for (int t = 0; t < tokens; t++) sums[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int group = 0; group < 8; group++) {
            const __m256i w = load_columns(columns + 32 * group);
            const __m256i magnitude = _mm256_abs_epi8(w);
            for (int t = 0; t < tokens; t++) {
                const __m256i q = broadcast_columns(x + t * ld, 4 * group);
                const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, w));
                sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(pairs, ones));
                KEEP(sums[t]);
            }
        }
        const __m256 scale = load_halves(block);
        for (int t = 0; t < tokens; t++) {
            const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x[t * ld].scale));
            acc[t] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(sums[t]), acc[t]);
        }
        block = columns + 256;
    }
    for (int t = 0; t < tokens; t++) _mm256_storeu_ps(out + 8 * t, acc[t]);
}

// Calls the form that is named, for 1 to 6 tokens, on each tile.
#define FOR_EACH_TILE(form)                                                     \
    for (int i = 0; i < tiles; i++, acc += 8 * tokens) {                        \
        const uint8_t* tile = in.tile + static_cast<size_t>(i) * in.tile_bytes; \
        if (tokens == 1) form(1);                                               \
        if (tokens == 2) form(2);                                               \
        if (tokens == 3) form(3);                                               \
        if (tokens == 4) form(4);                                               \
        if (tokens == 5) form(5);                                               \
        if (tokens == 6) form(6);                                               \
    }
#define Q4_0(count) tile_q4<count, false>(in, tile, acc)
#define Q4_1(count) tile_q4<count, true>(in, tile, acc)
#define Q8_0(count) tile_q8<count>(in, tile, acc)

}  // namespace

void tile_q4_0_avx2(const TileInput& in, int tiles, int tokens, float* acc) { FOR_EACH_TILE(Q4_0) }

void tile_q4_1_avx2(const TileInput& in, int tiles, int tokens, float* acc) { FOR_EACH_TILE(Q4_1) }

void tile_q8_0_avx2(const TileInput& in, int tiles, int tokens, float* acc) { FOR_EACH_TILE(Q8_0) }

}  // namespace octavo
#endif
