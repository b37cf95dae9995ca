// Activations as the linear kernels read them: fp32 rows, or int8 blocks quantised once per input
// and shared by every linear that reads that input. Depends on a token's own row only, never on the
// batch.
//
// One term of int8 errs by up to 1/254 of a block's largest magnitude. Where that is too much, a
// second term holds what the first left, quantised alike: together they err by 1/64,516 of it.
#pragma once

#include <cstdint>

#include "linear/isa.h"
#include "quant/weight_type.h"

namespace octavo {

// One block of one token. x[k] is about scale * q[k], with q in -127..127, rounded half to even.
//
// A block with a NaN or an infinity in it has scale NaN and all q zero: the outputs of that token
// become NaN and nobody else's. A block whose largest magnitude is below 2^-110 is all zero.
struct Q8Block {
    int8_t q[block_cols];
    float scale;
    float scaled_sum;   // scale * (sum of q): what a weight's minimum is multiplied by
    int16_t offset[2];  // -8 * (sum of the q[k] with k % 4 / 2 == 0, 1): centres unsigned nibbles
    int16_t half_sums[2];  // sums of q[0..15] and q[16..31]
};
static_assert(sizeof(Q8Block) == 48, "the kernels address blocks by this size");

// Q8Blocks from one row to the next, padding included: rows at a power-of-two distance would share
// the same few sets of the first-level cache. cols must be a multiple of 32.
int64_t q8_stride(int64_t cols);

// Quantises the tokens [token_begin, token_end) in `terms` terms, 1 or 2: x[token * ld_x + k] to
// out[(token * terms + term) * q8_stride(cols) + k / 32]. The second term is of
// fma(-scale, q, x). Safe on disjoint token ranges from several threads.
void quantise_q8(const float* x, int64_t ld_x, int64_t cols, int terms, int64_t token_begin,
                 int64_t token_end, Q8Block* out, Isa isa);

// The input of a linear. `x` serves F32, F16 and BF16 weights, `q8` all others (pointers to token
// 0; the one that no reader needs may be null).
struct Activations {
    const float* x = nullptr;
    int64_t ld_x = 0;             // floats from one token to the next
    const Q8Block* q8 = nullptr;  // rows of q8_stride(cols) blocks, `terms` rows a token
    int terms = 1;
};

}  // namespace octavo
