// Rotary positions for AVX2: eight pairs a step.
#include <immintrin.h>

#include <cmath>

#include "rope/rope.h"

namespace octavo {

void rope_avx2(const float* x, const float* cos_sin, int64_t heads, int64_t head_dim, int64_t half,
               float* out) {
    const float* sin = cos_sin + half;
    for (int64_t head = 0; head < heads; head++, x += head_dim, out += head_dim) {
        int64_t i = 0;
        for (; i + 8 <= half; i += 8) {
            const __m256 first = _mm256_loadu_ps(x + i), second = _mm256_loadu_ps(x + half + i);
            const __m256 c = _mm256_loadu_ps(cos_sin + i), s = _mm256_loadu_ps(sin + i);
            _mm256_storeu_ps(out + i, _mm256_fmsub_ps(first, c, _mm256_mul_ps(second, s)));
            _mm256_storeu_ps(out + half + i, _mm256_fmadd_ps(second, c, _mm256_mul_ps(first, s)));
        }
        for (; i < half; i++) {
            const float first = x[i], second = x[half + i];
            out[i] = std::fma(first, cos_sin[i], -(second * sin[i]));
            out[half + i] = std::fma(second, cos_sin[i], first * sin[i]);
        }
        for (i = 2 * half; i < head_dim; i++) out[i] = x[i];
    }
}

}  // namespace octavo
