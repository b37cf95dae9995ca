// RMS norm: dispatch, and the scalar form, which is the specification.
#include "norm/rms_norm.h"

#include <cmath>

#include "math/lanes.h"

namespace octavo {

void rms_norm(const float* x, const float* gain, int64_t width, float eps, float* out, Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return rms_norm_avx2(x, gain, width, eps, out);
#endif
    (void)isa;
    float lane[num_lanes] = {};
    for (int64_t i = 0; i < width; i++) {
        lane[i % num_lanes] = std::fma(x[i], x[i], lane[i % num_lanes]);
    }
    const float mean = add_lanes(lane) / static_cast<float>(width);
    const float scale = 1.0f / std::sqrt(mean + eps);
    for (int64_t i = 0; i < width; i++) out[i] = x[i] * scale * gain[i];
}

}  // namespace octavo
