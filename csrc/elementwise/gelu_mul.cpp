// gelu(gate) * up: dispatch, and the scalar form, which is the specification.
#include <cmath>

#include "elementwise/elementwise.h"
#include "math/exp.h"

namespace octavo {

void gelu_mul(const float* gate, const float* up, int64_t width, float* out, Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return gelu_mul_avx2(gate, up, width, out);
#endif
    (void)isa;
    for (int64_t i = 0; i < width; i++) {
        const float x = gate[i];
        const float u = x * std::fma(x * x, gelu_cubic, gelu_linear);
        out[i] = x / (1.0f + exp_f32(-u)) * up[i];
    }
}

}  // namespace octavo
