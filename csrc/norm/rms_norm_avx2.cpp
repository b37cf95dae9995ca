// RMS norm for AVX2: eight elements a step, the same sums as the scalar form.
#include <cmath>

#include "math/lanes_avx2.h"
#include "norm/rms_norm.h"

namespace octavo {

void rms_norm_avx2(const float* x, const float* gain, int64_t width, float eps, float* out) {
    __m256 lanes = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= width; i += 8) {
        const __m256 part = _mm256_loadu_ps(x + i);
        lanes = _mm256_fmadd_ps(part, part, lanes);
    }
    if (i < width) {
        const __m256 valid = first_lanes_avx2(static_cast<int>(width - i));
        const __m256 part = _mm256_and_ps(_mm256_loadu_ps(x + i), valid);
        lanes = _mm256_fmadd_ps(part, part, lanes);
    }
    const float mean = add_lanes_avx2(lanes) / static_cast<float>(width);
    const __m256 scale = _mm256_set1_ps(1.0f / std::sqrt(mean + eps));
    for (i = 0; i < width; i += 8) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), scale);
        _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(gain + i)));
    }
}

}  // namespace octavo
