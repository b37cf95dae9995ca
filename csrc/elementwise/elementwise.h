// Operations on rows, element by element. Rows are readable and writable up to the next multiple
// of 8 behind `width`; what stands there in `out` means nothing.
#pragma once

#include <cstdint>

#include "linear/isa.h"

namespace octavo {

// out = gate / (1 + exp(-gate)) * up
void silu_mul(const float* gate, const float* up, int64_t width, float* out, Isa isa);

// out = gate / (1 + exp(-u)) * up, u = gate * (gelu_linear + gelu_cubic * gate^2): gelu in its tanh
// form (Hendrycks, Gimpel 2016), since (1 + tanh(u / 2)) / 2 = 1 / (1 + exp(-u)).
void gelu_mul(const float* gate, const float* up, int64_t width, float* out, Isa isa);

constexpr float gelu_linear = 1.5957691216057308f;             // 2 sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715f * 1.5957691216057308f;  // of gate^3

// x = x * factor
void scale(float* x, float factor, int64_t width);

// out = a + b
void add(const float* a, const float* b, int64_t width, float* out);

void silu_mul_avx2(const float* gate, const float* up, int64_t width, float* out);
void gelu_mul_avx2(const float* gate, const float* up, int64_t width, float* out);

}  // namespace octavo
