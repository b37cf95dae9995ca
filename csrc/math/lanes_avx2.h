// The AVX2 form of lanes.h. Only for files compiled with AVX2.
#pragma once

#include <immintrin.h>

namespace octavo {

static inline float add_lanes_avx2(__m256 lanes) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
}

static inline float max_lanes_avx2(__m256 lanes) {
    __m128 max = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_shuffle_ps(max, max, 1)));
}

// All ones in the first `count` lanes, 0 <= count <= 8.
static inline __m256 first_lanes_avx2(int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
}

}  // namespace octavo
