// gelu(gate) * up for AVX2.
#include "elementwise/elementwise.h"
#include "math/exp_avx2.h"

namespace octavo {

void gelu_mul_avx2(const float* gate, const float* up, int64_t width, float* out) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 cubic = _mm256_set1_ps(gelu_cubic);
    const __m256 linear = _mm256_set1_ps(gelu_linear);
    for (int64_t i = 0; i < width; i += 8) {
        const __m256 x = _mm256_loadu_ps(gate + i);
        const __m256 u = _mm256_mul_ps(x, _mm256_fmadd_ps(_mm256_mul_ps(x, x), cubic, linear));
        const __m256 denominator = _mm256_add_ps(one, exp_f32_avx2(_mm256_xor_ps(u, sign)));
        const __m256 gelu = _mm256_div_ps(x, denominator);
        _mm256_storeu_ps(out + i, _mm256_mul_ps(gelu, _mm256_loadu_ps(up + i)));
    }
}

}  // namespace octavo
