// RMS norm of one row (Zhang, Sennrich 2019): out[i] = x[i] / sqrt(mean(x^2) + eps) * gain[i].
#pragma once

#include <cstdint>

#include "linear/isa.h"

namespace octavo {

// x, gain and out hold `width` numbers each, and nothing behind them is read or written.
void rms_norm(const float* x, const float* gain, int64_t width, float eps, float* out, Isa isa);

void rms_norm_avx2(const float* x, const float* gain, int64_t width, float eps, float* out);

}  // namespace octavo
