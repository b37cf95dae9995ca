// Activation quantisation with AVX2: 32 columns in four vectors, equal to the scalar form.
#include "quant/activations_avx2.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo {

namespace {

float largest_of(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Leaves in v what the block does not hold of it.
void quantise_block(__m256* v, Q8Block* out) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 limit = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f7fffff));  // largest finite
    // The packs below work within 128-bit halves; this puts their dwords back in column order.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

    __m256 magnitude = _mm256_setzero_ps();
    __m256 finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (int i = 0; i < 4; i++) {
        const __m256 a = _mm256_andnot_ps(sign, v[i]);
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(a, limit, _CMP_LE_OQ));
        magnitude = _mm256_max_ps(magnitude, a);
    }
    __m256i* const q_out = reinterpret_cast<__m256i*>(out->q);
    const bool all_finite = _mm256_movemask_ps(finite) == 0xff;
    const float largest = largest_of(magnitude);
    if (!all_finite || largest < 0x1p-110f) {
        _mm256_storeu_si256(q_out, _mm256_setzero_si256());
        out->scale = out->scaled_sum = all_finite ? 0.0f : __builtin_nanf("");
        out->offset[0] = out->offset[1] = out->half_sums[0] = out->half_sums[1] = 0;
        return;
    }

    const __m256 inverse = _mm256_set1_ps(127.0f / largest);
    out->scale = largest / 127.0f;
    const __m256 scale = _mm256_set1_ps(out->scale);
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        v[i] = _mm256_fnmadd_ps(scale, _mm256_cvtepi32_ps(q[i]), v[i]);
    }
    const __m256i low = _mm256_packs_epi32(q[0], q[1]);
    const __m256i high = _mm256_packs_epi32(q[2], q[3]);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
    _mm256_storeu_si256(q_out, bytes);

    // Sums of neighbouring columns; even pairs belong to offset[0], odd ones to offset[1]. Added up
    // they leave, for the first 16 columns and for the others, an even and an odd sum.
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    const __m128i first = _mm256_castsi256_si128(pairs);
    const __m128i last = _mm256_extracti128_si256(pairs, 1);
    __m128i sums = _mm_add_epi16(_mm_unpacklo_epi64(first, last), _mm_unpackhi_epi64(first, last));
    sums = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, _MM_SHUFFLE(2, 3, 0, 1)));
    const int first_even = static_cast<int16_t>(_mm_extract_epi16(sums, 0));
    const int first_odd = static_cast<int16_t>(_mm_extract_epi16(sums, 1));
    const int last_even = static_cast<int16_t>(_mm_extract_epi16(sums, 4));
    const int last_odd = static_cast<int16_t>(_mm_extract_epi16(sums, 5));
    const int even = first_even + last_even;
    const int odd = first_odd + last_odd;
    out->half_sums[0] = static_cast<int16_t>(first_even + first_odd);
    out->half_sums[1] = static_cast<int16_t>(last_even + last_odd);
    out->scaled_sum = out->scale * static_cast<float>(even + odd);
    out->offset[0] = static_cast<int16_t>(-8 * even);
    out->offset[1] = static_cast<int16_t>(-8 * odd);
}

}  // namespace

void quantise_row_avx2(const float* x, int64_t blocks, int terms, int64_t stride, Q8Block* out) {
    for (int64_t b = 0; b < blocks; b++, x += block_cols, out++) {
        __m256 v[4];
        for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
        quantise_block(v, out);
        if (terms == 2) quantise_block(v, out + stride);
    }
}

}  // namespace octavo
#endif
