// Rotary positions: angles, dispatch, and the scalar form, which is the specification.
#include "rope/rope.h"

#include <cmath>

namespace octavo {

void rope_angles(int32_t position, const float* frequencies, int64_t half, float* cos_sin) {
    for (int64_t i = 0; i < half; i++) {
        const double angle = static_cast<float>(position) * frequencies[i];
        cos_sin[i] = static_cast<float>(std::cos(angle));
        cos_sin[half + i] = static_cast<float>(std::sin(angle));
    }
}

void rope(const float* x, const float* cos_sin, int64_t heads, int64_t head_dim, int64_t half,
          float* out, Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return rope_avx2(x, cos_sin, heads, head_dim, half, out);
#endif
    (void)isa;
    const float* sin = cos_sin + half;
    for (int64_t head = 0; head < heads; head++, x += head_dim, out += head_dim) {
        for (int64_t i = 0; i < half; i++) {
            const float first = x[i], second = x[half + i];
            out[i] = std::fma(first, cos_sin[i], -(second * sin[i]));
            out[half + i] = std::fma(second, cos_sin[i], first * sin[i]);
        }
        for (int64_t i = 2 * half; i < head_dim; i++) out[i] = x[i];
    }
}

}  // namespace octavo
