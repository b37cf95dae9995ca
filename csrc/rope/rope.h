// Rotary positions (Su et al. 2021, RoFormer): the first half of what turns, paired with the
// second.
#pragma once

#include <cstdint>

#include "linear/isa.h"

namespace octavo {

// cos_sin: [2 * half], the cosines and then the sines of position * frequencies[i], both rounded to
// fp32 first, as in the reference.
void rope_angles(int32_t position, const float* frequencies, int64_t half, float* cos_sin);

// Turns each head of one row [heads * head_dim] by the angles of its token; the numbers of a head
// behind 2 * half stay as they are.
void rope(const float* x, const float* cos_sin, int64_t heads, int64_t head_dim, int64_t half,
          float* out, Isa isa);

void rope_avx2(const float* x, const float* cos_sin, int64_t heads, int64_t head_dim, int64_t half,
               float* out);

}  // namespace octavo
