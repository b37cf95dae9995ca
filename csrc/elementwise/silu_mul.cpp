// silu(gate) * up: dispatch, and the scalar form, which is the specification.
#include "elementwise/elementwise.h"
#include "math/exp.h"

namespace octavo {

void silu_mul(const float* gate, const float* up, int64_t width, float* out, Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return silu_mul_avx2(gate, up, width, out);
#endif
    (void)isa;
    for (int64_t i = 0; i < width; i++) out[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

}  // namespace octavo
