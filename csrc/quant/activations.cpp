// Activation quantisation: dispatch, and the scalar form, which is the specification.
#include "quant/activations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/activations_avx2.h"

namespace octavo {

namespace {

// Leaves in x what the block does not hold of it.
void quantise_block_scalar(float* x, Q8Block* out) {
    float largest = 0.0f;
    bool finite = true;
    for (int k = 0; k < block_cols; k++) {
        const float magnitude = std::fabs(x[k]);
        finite = finite && magnitude <= std::numeric_limits<float>::max();
        largest = magnitude > largest ? magnitude : largest;
    }
    *out = Q8Block{};
    if (!finite) {
        out->scale = out->scaled_sum = std::numeric_limits<float>::quiet_NaN();
        return;
    }
    if (largest < 0x1p-110f) return;  // 127 / largest would overflow near here

    const float inverse = 127.0f / largest;
    int halves[2] = {0, 0};
    int pairs[2] = {0, 0};
    for (int k = 0; k < block_cols; k++) {
        const int q = static_cast<int>(std::nearbyint(x[k] * inverse));
        out->q[k] = static_cast<int8_t>(q);
        halves[k / 16] += q;
        pairs[k % 4 / 2] += q;
    }
    out->scale = largest / 127.0f;
    out->scaled_sum = out->scale * static_cast<float>(halves[0] + halves[1]);
    for (int i = 0; i < 2; i++) {
        out->offset[i] = static_cast<int16_t>(-8 * pairs[i]);
        out->half_sums[i] = static_cast<int16_t>(halves[i]);
    }
    for (int k = 0; k < block_cols; k++) {
        x[k] = std::fma(-out->scale, static_cast<float>(out->q[k]), x[k]);
    }
}

void quantise_row_scalar(const float* x, int64_t blocks, int terms, int64_t stride, Q8Block* out) {
    for (int64_t b = 0; b < blocks; b++, x += block_cols, out++) {
        float left[block_cols];
        std::copy(x, x + block_cols, left);
        for (int term = 0; term < terms; term++) quantise_block_scalar(left, out + term * stride);
    }
}

}  // namespace

int64_t q8_stride(int64_t cols) {
    // 48 bytes a block: an odd number of blocks keeps rows off power-of-two distances.
    return cols / block_cols | 1;
}

void quantise_q8(const float* x, int64_t ld_x, int64_t cols, int terms, int64_t token_begin,
                 int64_t token_end, Q8Block* out, Isa isa) {
    const int64_t blocks = cols / block_cols;
    const int64_t stride = q8_stride(cols);
    for (int64_t token = token_begin; token < token_end; token++) {
        const float* row = x + token * ld_x;
        Q8Block* row_out = out + token * terms * stride;
#if defined(__x86_64__)
        if (isa == Isa::avx2) {
            quantise_row_avx2(row, blocks, terms, stride, row_out);
            continue;
        }
#endif
        quantise_row_scalar(row, blocks, terms, stride, row_out);
    }
    (void)isa;
}

}  // namespace octavo
