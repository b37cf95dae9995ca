// How the executor cuts work into pieces for its threads. Who computes a piece changes no bit.
#pragma once

#include <algorithm>
#include <cstdint>

namespace octavo {

constexpr int64_t unit_tiles = 4;  // the linears' kernels like whole multiples of so many tiles

// The part of `count` things that belongs to a thread: a fixed split.
struct Range {
    int64_t begin;
    int64_t end;
};

inline Range share(int64_t count, int thread, int threads) {
    return {count * thread / threads, count * (thread + 1) / threads};
}

inline int64_t units_of(int64_t tiles) { return (tiles + unit_tiles - 1) / unit_tiles; }

// Cuts `count` things into pieces, about `each` for a thread.
inline int64_t piece_of(int64_t count, int threads, int64_t each) {
    return std::max<int64_t>(1, count / (threads * each));
}

inline int pieces(int64_t count, int64_t piece) {
    return static_cast<int>((count + piece - 1) / piece);
}

}  // namespace octavo
