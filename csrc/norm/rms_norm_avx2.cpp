// RMS norm for AVX2: eight elements a step, the same sums as the scalar form.
#include <cmath>

#include "math/lanes_avx2.h"
#include "norm/rms_norm.h"

namespace octavo {

void rms_norm_avx2(const float* x, const float* gain, int64_t width, float eps, float* out) {
    const int64_t whole = width / 8 * 8;
    // The rest of a row may be followed by another's numbers: neither read nor written.
    const __m256i rest = _mm256_castps_si256(first_lanes_avx2(static_cast<int>(width - whole)));
    __m256 lanes = _mm256_setzero_ps();
    for (int64_t i = 0; i < whole; i += 8) {
        const __m256 part = _mm256_loadu_ps(x + i);
        lanes = _mm256_fmadd_ps(part, part, lanes);
    }
    if (whole < width) {
        const __m256 part = _mm256_maskload_ps(x + whole, rest);
        lanes = _mm256_fmadd_ps(part, part, lanes);
    }
    const float mean = add_lanes_avx2(lanes) / static_cast<float>(width);
    const __m256 scale = _mm256_set1_ps(1.0f / std::sqrt(mean + eps));
    for (int64_t i = 0; i < whole; i += 8) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), scale);
        _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(gain + i)));
    }
    if (whole < width) {
        const __m256 scaled = _mm256_mul_ps(_mm256_maskload_ps(x + whole, rest), scale);
        const __m256 gains = _mm256_maskload_ps(gain + whole, rest);
        _mm256_maskstore_ps(out + whole, rest, _mm256_mul_ps(scaled, gains));
    }
}

}  // namespace octavo
