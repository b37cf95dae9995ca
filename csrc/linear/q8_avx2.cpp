// The types of signed bytes with AVX2: q8_0, and iq4_nl and iq4_xs, whose nibbles name bytes.
#include "linear/tile_kernel.h"

#if defined(__x86_64__)
#include "linear/q_avx2.h"

namespace octavo {

namespace {

// The integers of four columns of each row.
template <WeightType type>
inline __m256i load_values(const uint8_t* columns, int group, __m256i table) {
    if (type == WeightType::q8_0) return load_columns(columns + 32 * group);
    return _mm256_shuffle_epi8(table, load_bits<4>(columns, group, 0));
}

// Bytes are multiplied as |w| * (q with the sign of w): unsigned by signed, as the instruction
// wants. Two such products fill an int16 (2 * 128 * 127 < 2^15), so each group is widened.
template <WeightType type, int tokens>
void tile_q8(const TileInput& in, const uint8_t* at, float* out) {
    constexpr QFormat format = format_of(type);
    const __m256i table = load_table(iq4_values);
    const __m256i ones = _mm256_set1_epi16(1);
    const Q8Block* x = in.q8;
    const int64_t ld = in.ld_q8;
    __m256 acc[tokens];
    for (int t = 0; t < tokens; t++) acc[t] = _mm256_setzero_ps();

    for (int64_t b = in.cols / format.width; b > 0; b--) {
        const uint8_t* const halves_at = at;
        at += lane_halves;
        for (int p = 0; p < format.width / block_cols; p++, x++) {
            prefetch_block<tile_block_bytes(format) / (format.width / block_cols)>(at);
            const uint8_t* const columns = at + tile_rows * format.part_bytes;
            __m256i dots[tokens];
            for (int t = 0; t < tokens; t++) dots[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int group = 0; group < 8; group++) {
                const __m256i w = load_values<type>(columns, group, table);
                const __m256i magnitude = _mm256_abs_epi8(w);
                for (int t = 0; t < tokens; t++) {
                    const __m256i q = broadcast_columns(x + t * ld, 4 * group);
                    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, w));
                    dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(pairs, ones));
                    KEEP(dots[t]);
                }
            }
            const __m256 halves[2] = {load_halves(halves_at), _mm256_setzero_ps()};
            add_scaled<false, tokens>(row_scales<type>(halves, at), dots, x, ld, acc);
            at = columns + 32 * format.low_bits;
        }
    }
    for (int t = 0; t < tokens; t++) _mm256_storeu_ps(out + 8 * t, acc[t]);
}

}  // namespace

void tile_q8_0_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_q8, q8_0)
}

void tile_iq4_nl_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_q8, iq4_nl)
}

void tile_iq4_xs_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    FOR_EACH_TILE(tile_q8, iq4_xs)
}

}  // namespace octavo
#endif
