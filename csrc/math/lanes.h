// Sums over eight lanes in one fixed order: what the scalar forms share with one AVX2 register.
#pragma once

namespace octavo {

// Element i of a row belongs to lane i % 8.
constexpr int num_lanes = 8;

// The order in which AVX2 adds the two halves of a register, then pairs, then the last two. Static:
// translation units for different CPUs may not share one copy.
template <typename Number>
static inline Number add_lanes(const Number* lane) {
    const Number even = (lane[0] + lane[4]) + (lane[2] + lane[6]);
    const Number odd = (lane[1] + lane[5]) + (lane[3] + lane[7]);
    return even + odd;
}

}  // namespace octavo
