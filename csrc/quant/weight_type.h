// The encodings of weights that have kernels, by name.
#pragma once

namespace octavo {

constexpr int block_cols = 32;  // columns a block of activations spans

// Floating-point types first, then the q types, whose blocks octavo/weights/quants.py describes.
enum class WeightType {
    f32,
    f16,
    bf16,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q8_0,
    q2_k,
    q3_k,
    q4_k,
    q5_k,
    q6_k,
    iq4_nl,
    iq4_xs,
    mxfp4,
};

// Names as in octavo/weights/encodings.py, in the order of the enumeration.
constexpr const char* weight_type_names[] = {
    "F32",  "F16",  "BF16", "Q4_0", "Q4_1", "Q5_0",   "Q5_1",   "Q8_0",
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
};

}  // namespace octavo
