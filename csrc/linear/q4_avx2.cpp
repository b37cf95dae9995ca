// The plain 4-bit types with AVX2 (q4_0, q4_1, q4_K, mxfp4): the products of 32 columns fit one
// int16 sum.
#include "linear/tile_kernel.h"

#if defined(__x86_64__)
#include "linear/q_avx2.h"

namespace octavo {

namespace {

// What is added to the integers of mxfp4, -12 to 12, to make them unsigned.
constexpr int mxfp4_excess = 12;

// Unsigned integers of nibbles.
template <WeightType type>
inline __m256i integers(__m256i nibbles, __m256i table) {
    return type == WeightType::mxfp4 ? _mm256_shuffle_epi8(table, nibbles) : nibbles;
}

// Where a token's sums start, so that they end centred.
template <WeightType type>
inline __m256i first_sums(const Q8Block& x) {
    if (format_of(type).halves == 2) return _mm256_setzero_si256();
    const __m256i eight = broadcast_pair(x.offset);  // -8 * (sum of x's integers)
    if (type == WeightType::q4_0) return eight;
    static_assert(mxfp4_excess == 8 + 8 / 2, "made of the offset and its half");
    return _mm256_add_epi16(eight, _mm256_srai_epi16(eight, 1));
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

// Unsigned nibbles times signed bytes give int16 pairs that take 32 columns without overflow
// (8 groups * 2 columns * 15 * 127 < 2^15) and are widened once. q4_0 and mxfp4 centre their
// integers by starting the sums at what the excess makes of the token; a wrap on the way is undone,
// for the true sum fits.
template <WeightType type, int tokens>
void tile_q4(const TileInput& in, const uint8_t* at, float* out) {
    constexpr QFormat format = format_of(type);
    constexpr bool has_minimum = format.halves == 2;
    const __m256i table = _mm256_add_epi8(load_table(mxfp4_values), _mm256_set1_epi8(mxfp4_excess));
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i ones = _mm256_set1_epi16(1);
    const Q8Block* x = in.q8;
    const int64_t ld = in.ld_q8;
    __m256 acc[tokens];
    for (int t = 0; t < tokens; t++) acc[t] = _mm256_setzero_ps();

    for (int64_t b = in.cols / format.width; b > 0; b--) {
        const uint8_t* const halves_at = at;
        at += lane_halves * format.halves;
        for (int p = 0; p < format.width / block_cols; p++, x++) {
            prefetch_block<tile_block_bytes(format) / (format.width / block_cols)>(at);
            const uint8_t* const columns = at + tile_rows * format.part_bytes;
            __m256i sums[tokens];
            for (int t = 0; t < tokens; t++) sums[t] = first_sums<type>(x[t * ld]);
#pragma GCC unroll 4
            for (int group = 0; group < 4; group++) {
                const __m256i packed = load_columns(columns + 32 * group);
                const __m256i low = _mm256_and_si256(packed, mask);
                const __m256i high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask);
                add_group<tokens>(integers<type>(low, table), x, ld, 4 * group, sums);
                add_group<tokens>(integers<type>(high, table), x, ld, 16 + 4 * group, sums);
            }
            __m256 halves[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
            for (int i = 0; i < format.halves; i++) {
                halves[i] = load_halves(halves_at + lane_halves * i);
            }
            for (int t = 0; t < tokens; t++) sums[t] = _mm256_madd_epi16(sums[t], ones);
            add_scaled<has_minimum, tokens>(row_scales<type>(halves, at), sums, x, ld, acc);
            at = columns + 128;
        }
    }
    for (int t = 0; t < tokens; t++) _mm256_storeu_ps(out + 8 * t, acc[t]);
}

}  // namespace

void tile_q4_0_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_q4, q4_0)
}

void tile_q4_1_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_q4, q4_1)
}

void tile_q4_k_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_q4, q4_k)
}

void tile_mxfp4_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_q4, mxfp4)
}

}  // namespace octavo
#endif
