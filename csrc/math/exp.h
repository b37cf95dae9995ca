// exp of our own, so that every instruction set and C library gives the same bits.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; exp(x) = 2^n (1 + r + r^2 / 2! + ...). The Taylor series is
// cut where its rest is below half a unit in the last place: at r^7 for float, at r^13 for double.
// Within 2 units in the last place. The functions are static: translation units that are compiled
// for different CPUs may not share one copy.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace octavo {

namespace exp32 {
constexpr float lowest = -87.25f;  // below: 0, without the subnormal numbers
constexpr float highest = 88.25f;  // above: exp(highest)
constexpr float log2_e = 1.44269504f;
constexpr float ln2_high = 0.693359375f;  // nine bits, so that n * ln2_high is exact
constexpr float ln2_low = -2.12194440e-4f;
constexpr float round_up = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
constexpr float series[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                            1.0f / 6,    0.5f,       1.0f,       1.0f};
}  // namespace exp32

namespace exp64 {
constexpr double lowest = -708.0;
constexpr double log2_e = 1.4426950408889634;
constexpr double ln2_high = 0.69314718055966295651160180568695068359375;
constexpr double ln2_low = 2.8235290563031577122588448175013436025525412068e-13;
constexpr double round_up = 6755399441055744.0;  // 1.5 * 2^52
constexpr double series[] = {1.0 / 6227020800,
                             1.0 / 479001600,
                             1.0 / 39916800,
                             1.0 / 3628800,
                             1.0 / 362880,
                             1.0 / 40320,
                             1.0 / 5040,
                             1.0 / 720,
                             1.0 / 120,
                             1.0 / 24,
                             1.0 / 6,
                             0.5,
                             1.0,
                             1.0};
}  // namespace exp64

// NaN gives NaN.
static inline float exp_f32(float x) {
    const float clamped = exp32::highest < x ? exp32::highest : x;
    const float shifted = std::fma(clamped, exp32::log2_e, exp32::round_up);
    const float n = shifted - exp32::round_up;
    const float r = std::fma(-n, exp32::ln2_low, std::fma(-n, exp32::ln2_high, clamped));
    float value = exp32::series[0];
    for (int i = 1; i < 8; i++) value = std::fma(value, r, exp32::series[i]);
    // n stands in the low bits of `shifted`: add it to the exponent.
    uint32_t bits, n_bits;
    std::memcpy(&bits, &value, sizeof bits);
    std::memcpy(&n_bits, &shifted, sizeof n_bits);
    bits += n_bits << 23;
    std::memcpy(&value, &bits, sizeof bits);
    return x < exp32::lowest ? 0.0f : value;
}

// For x <= 0 (or NaN).
static inline double exp_f64(double x) {
    const double shifted = std::fma(x, exp64::log2_e, exp64::round_up);
    const double n = shifted - exp64::round_up;
    const double r = std::fma(-n, exp64::ln2_low, std::fma(-n, exp64::ln2_high, x));
    double value = exp64::series[0];
    for (int i = 1; i < 14; i++) value = std::fma(value, r, exp64::series[i]);
    uint64_t bits, n_bits;
    std::memcpy(&bits, &value, sizeof bits);
    std::memcpy(&n_bits, &shifted, sizeof n_bits);
    bits += n_bits << 52;
    std::memcpy(&value, &bits, sizeof bits);
    return x < exp64::lowest ? 0.0 : value;
}

}  // namespace octavo
