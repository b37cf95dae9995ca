// The other q types with AVX2 (q5_0, q5_1, q5_K; q2_K, q3_K, q6_K): 16 columns at a time,
// because their codes overflow int16 after that or their scales change there.
#include "linear/tile_kernel.h"

#if defined(__x86_64__)
#include "linear/q_avx2.h"

namespace octavo {

namespace {

// Whether each 16 columns have a scale of their own.
constexpr bool scales_halves(WeightType type) {
    return type == WeightType::q2_k || type == WeightType::q3_k || type == WeightType::q6_k;
}

// Unsigned codes of four columns of each row.
template <WeightType type>
inline __m256i load_codes(const uint8_t* codes, int group) {
    constexpr QFormat format = format_of(type);
    const __m256i low = load_bits<format.low_bits>(codes, group, 0);
    if constexpr (format.high_bits > 0) {
        const uint8_t* const high = codes + 32 * format.low_bits;
        return _mm256_or_si256(low, load_bits<format.high_bits>(high, group, format.low_bits));
    } else {
        return low;
    }
}

// a in the lower and b in the upper half of each row's lane, of int16 numbers a row.
inline __m256i interleave(__m128i a, __m128i b) {
    return _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
}

// int16 factors of the sums of two columns, a lane a row.
struct Factors {
    __m256i first, last;  // of columns 0..15 and 16..31: a row's scale twice
    __m256i scales;       // both
    __m256i minimums;     // of q2_K: both
};

template <WeightType type>
inline Factors load_factors(const uint8_t* part_bytes) {
    const __m256i ones = _mm256_set1_epi16(1);
    if (!scales_halves(type)) return {ones, ones, ones, ones};
    const __m128i bytes[2] = {load_row_bytes(part_bytes), load_row_bytes(part_bytes + tile_rows)};
    if (type == WeightType::q2_k) {
        const __m128i mask = _mm_set1_epi16(15);
        const __m128i first = _mm_cvtepu8_epi16(bytes[0]), last = _mm_cvtepu8_epi16(bytes[1]);
        const __m128i a = _mm_and_si128(first, mask), b = _mm_and_si128(last, mask);
        return {interleave(a, a), interleave(b, b), interleave(a, b),
                interleave(_mm_srli_epi16(first, 4), _mm_srli_epi16(last, 4))};
    }
    const __m128i a = _mm_cvtepi8_epi16(bytes[0]), b = _mm_cvtepi8_epi16(bytes[1]);
    return {interleave(a, a), interleave(b, b), interleave(a, b), ones};
}

// Adds 16 columns, scaled, to each token's dots. The int16 sums take four groups of codes of at
// most 31 (4 groups * 2 columns * 31 * 127 < 2^15), two of those of 6 bits.
template <WeightType type, int half, int tokens>
inline void add_half(const uint8_t* codes, __m256i factor, const Q8Block* x, int64_t ld,
                     __m256i* dots) {
    constexpr QFormat format = format_of(type);
    constexpr int groups = format.low_bits + format.high_bits == 6 ? 2 : 4;
#pragma GCC unroll 2
    for (int first = 4 * half; first < 4 * half + 4; first += groups) {
        __m256i w[groups];
#pragma GCC unroll 4
        for (int i = 0; i < groups; i++) w[i] = load_codes<type>(codes, first + i);
        for (int t = 0; t < tokens; t++) {
            const Q8Block* q = x + t * ld;
            __m256i sum = _mm256_maddubs_epi16(w[0], broadcast_columns(q, 4 * first));
#pragma GCC unroll 4
            for (int i = 1; i < groups; i++) {
                const __m256i columns = broadcast_columns(q, 4 * (first + i));
                sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[i], columns));
            }
            dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(sum, factor));
            KEEP(dots[t]);
        }
    }
}

// Codes are centred by what their excess adds to the dots: -excess * scale * (sum of x's integers),
// of each 16 columns.
template <WeightType type, int tokens>
void tile_halves(const TileInput& in, const uint8_t* at, float* out) {
    constexpr QFormat format = format_of(type);
    constexpr bool has_minimum = format.halves == 2;
    const __m256i less = _mm256_set1_epi16(-format.excess);
    const Q8Block* x = in.q8;
    const int64_t ld = in.ld_q8;
    __m256 acc[tokens];
    for (int t = 0; t < tokens; t++) acc[t] = _mm256_setzero_ps();

    for (int64_t b = in.cols / format.width; b > 0; b--) {
        __m256 halves[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int i = 0; i < format.halves; i++, at += lane_halves) halves[i] = load_halves(at);
        for (int p = 0; p < format.width / block_cols; p++, x++) {
            prefetch_block<tile_block_bytes(format) / (format.width / block_cols)>(at);
            const uint8_t* const codes = at + tile_rows * format.part_bytes;
            const Factors by = load_factors<type>(at);
            const __m256i excess = _mm256_mullo_epi16(by.scales, less);
            __m256i dots[tokens];
            for (int t = 0; t < tokens; t++) {
                dots[t] = format.excess > 0
                              ? _mm256_madd_epi16(excess, broadcast_pair(x[t * ld].half_sums))
                              : _mm256_setzero_si256();
            }
            add_half<type, 0, tokens>(codes, by.first, x, ld, dots);
            add_half<type, 1, tokens>(codes, by.last, x, ld, dots);

            if (!scales_halves(type)) {
                add_scaled<has_minimum, tokens>(row_scales<type>(halves, at), dots, x, ld, acc);
            } else {
                add_scaled<false, tokens>({halves[0], halves[1]}, dots, x, ld, acc);
            }
            if (type == WeightType::q2_k) {
                for (int t = 0; t < tokens; t++) {
                    dots[t] = _mm256_madd_epi16(by.minimums, broadcast_pair(x[t * ld].half_sums));
                }
                add_scaled<false, tokens>({negative(halves[1]), halves[1]}, dots, x, ld, acc);
            }
            at = codes + 32 * (format.low_bits + format.high_bits);
        }
    }
    for (int t = 0; t < tokens; t++) _mm256_storeu_ps(out + 8 * t, acc[t]);
}

}  // namespace

void tile_q5_0_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_halves, q5_0)
}

void tile_q5_1_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_halves, q5_1)
}

void tile_q5_k_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_halves, q5_k)
}

void tile_q2_k_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_halves, q2_k)
}

void tile_q3_k_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_halves, q3_k)
}

void tile_q6_k_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_halves, q6_k)
}

}  // namespace octavo
#endif
