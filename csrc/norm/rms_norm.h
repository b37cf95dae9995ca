// RMS norm of one row (Zhang, Sennrich 2019): out[i] = x[i] / sqrt(mean(x^2) + eps) * gain[i].
#pragma once

#include <cstdint>

#include "linear/isa.h"

namespace octavo {

// Rows hold `width` numbers and are readable and writable up to the next multiple of 8; what
// stands behind `width` in `out` means nothing.
void rms_norm(const float* x, const float* gain, int64_t width, float eps, float* out, Isa isa);

void rms_norm_avx2(const float* x, const float* gain, int64_t width, float eps, float* out);

}  // namespace octavo
