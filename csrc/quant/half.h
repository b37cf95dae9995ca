// fp16, bf16 and e8m0 to fp32 in plain C++; fp16 equals the F16C instructions bit for bit.
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo {

inline float float_from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline float float_from_f16(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1fu;
    const uint32_t fraction = half & 0x3ffu;
    if (exponent == 31) {  // infinity, or a NaN: quieted, as the instruction does
        const uint32_t quiet = fraction ? 0x400000u : 0u;
        return float_from_bits(sign | 0x7f800000u | quiet | fraction << 13);
    }
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in fp32
        const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

// A bf16 is the upper half of the fp32 with the same value.
inline float float_from_bf16(uint16_t half) {
    return float_from_bits(static_cast<uint32_t>(half) << 16);
}

// Half of the power of two that an e8m0 exponent stands for, as it multiplies doubled FP4 values:
// 2^-128 (subnormal) to 2^127. 255, NaN by the format, is a number here as it is to GGML.
inline float float_from_e8m0_halved(uint8_t exponent) {
    return float_from_bits(exponent < 2 ? 0x200000u << exponent : (exponent - 1u) << 23);
}

// File bytes have no alignment.
inline uint16_t load_u16(const uint8_t* bytes) {
    uint16_t value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

}  // namespace octavo
