// Operations on rows, element by element. Rows are readable and writable up to the next multiple
// of 8 behind `width`; what stands there in `out` means nothing.
#pragma once

#include <cstdint>

#include "linear/isa.h"

namespace octavo {

// out = gate / (1 + exp(-gate)) * up
void silu_mul(const float* gate, const float* up, int64_t width, float* out, Isa isa);

// out = a + b
void add(const float* a, const float* b, int64_t width, float* out);

void silu_mul_avx2(const float* gate, const float* up, int64_t width, float* out);

}  // namespace octavo
