// The AVX2 form of exp.h, operation for operation. Only for files compiled with AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include "math/exp.h"

namespace octavo {

static inline __m256 exp_f32_avx2(__m256 x) {
    // min(highest, x) gives x when x is NaN.
    const __m256 clamped = _mm256_min_ps(_mm256_set1_ps(exp32::highest), x);
    const __m256 round_up = _mm256_set1_ps(exp32::round_up);
    const __m256 shifted = _mm256_fmadd_ps(clamped, _mm256_set1_ps(exp32::log2_e), round_up);
    const __m256 n = _mm256_sub_ps(shifted, round_up);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(exp32::ln2_high), clamped);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(exp32::ln2_low), r);
    __m256 value = _mm256_set1_ps(exp32::series[0]);
    for (int i = 1; i < 8; i++) {
        value = _mm256_fmadd_ps(value, r, _mm256_set1_ps(exp32::series[i]));
    }
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(value),
                                          _mm256_slli_epi32(_mm256_castps_si256(shifted), 23));
    const __m256 tiny = _mm256_cmp_ps(x, _mm256_set1_ps(exp32::lowest), _CMP_LT_OQ);
    return _mm256_andnot_ps(tiny, _mm256_castsi256_ps(bits));
}

// For x <= 0 (or NaN).
static inline __m256d exp_f64_avx2(__m256d x) {
    const __m256d round_up = _mm256_set1_pd(exp64::round_up);
    const __m256d shifted = _mm256_fmadd_pd(x, _mm256_set1_pd(exp64::log2_e), round_up);
    const __m256d n = _mm256_sub_pd(shifted, round_up);
    __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(exp64::ln2_high), x);
    r = _mm256_fnmadd_pd(n, _mm256_set1_pd(exp64::ln2_low), r);
    __m256d value = _mm256_set1_pd(exp64::series[0]);
    for (int i = 1; i < 14; i++) {
        value = _mm256_fmadd_pd(value, r, _mm256_set1_pd(exp64::series[i]));
    }
    const __m256i bits = _mm256_add_epi64(_mm256_castpd_si256(value),
                                          _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52));
    const __m256d tiny = _mm256_cmp_pd(x, _mm256_set1_pd(exp64::lowest), _CMP_LT_OQ);
    return _mm256_andnot_pd(tiny, _mm256_castsi256_pd(bits));
}

}  // namespace octavo
