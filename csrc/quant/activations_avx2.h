// The AVX2 form of quantise_q8, compiled in its own translation unit.
#pragma once

#include "quant/activations.h"

namespace octavo {

// Quantises one row of `blocks` blocks in 1 or 2 terms, `stride` blocks apart.
void quantise_row_avx2(const float* x, int64_t blocks, int terms, int64_t stride, Q8Block* out);

}  // namespace octavo
