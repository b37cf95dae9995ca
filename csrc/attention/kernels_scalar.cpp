// The scalar form of attention's inner loops: the specification of the others.
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/kernels.h"
#include "math/exp.h"
#include "math/lanes.h"
#include "quant/half.h"

namespace octavo {

namespace {

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Half to even, as F16C rounds; overflow to infinity, NaN stays one.
uint16_t f16_from_float(float value) {
    const uint32_t bits = bits_of(value);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more
    if (magnitude < 0x38800000u) {
        // Below 2^-14: multiples of 2^-24. Adding 0.5 makes the hardware round to them.
        float shifted;
        std::memcpy(&shifted, &magnitude, sizeof shifted);
        return sign | static_cast<uint16_t>(bits_of(shifted + 0.5f) - 0x3f000000u);
    }
    const uint32_t odd = magnitude >> 13 & 1u;
    return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

uint16_t bf16_from_float(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float load(KvType type, const void* from, int64_t index) {
    if (type == KvType::f32) return static_cast<const float*>(from)[index];
    const uint16_t half = static_cast<const uint16_t*>(from)[index];
    return type == KvType::f16 ? float_from_f16(half) : float_from_bf16(half);
}

void widen(KvType type, const void* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i++) to[i] = load(type, from, i);
}

void narrow(KvType type, const float* from, int64_t count, void* to) {
    if (type == KvType::f32) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
        return;
    }
    uint16_t* halves = static_cast<uint16_t*>(to);
    const bool f16 = type == KvType::f16;
    for (int64_t i = 0; i < count; i++) {
        halves[i] = f16 ? f16_from_float(from[i]) : bf16_from_float(from[i]);
    }
}

void scores(const float* const* q, int rows, KvType type, const void* keys, int groups, int dim,
            float scale, float* out, int64_t ld) {
    for (int row = 0; row < rows; row++) {
        for (int position = 0; position < 8 * groups; position++) {
            const int64_t key = static_cast<int64_t>(position / 8) * 8 * dim + position % 8;
            float acc = 0.0f;
            for (int d = 0; d < dim; d++) {
                acc = std::fma(q[row][d], load(type, keys, key + 8 * d), acc);
            }
            out[row * ld + position] = acc * scale;
        }
    }
}

float weigh(float* scores, int begin, int end, float* max) {
    float highest = -std::numeric_limits<float>::infinity();
    for (int i = begin; i < end; i++) highest = scores[i] > highest ? scores[i] : highest;
    float lane[num_lanes] = {};
    for (int i = begin & ~7; i < ((end + 7) & ~7); i++) {
        scores[i] = i < begin || i >= end ? 0.0f : exp_f32(scores[i] - highest);
        lane[i % num_lanes] += scores[i];
    }
    *max = highest;
    return add_lanes(lane);
}

void accumulate(const float* weights, int64_t ld, int rows, KvType type, const void* values,
                int begin, int end, int dim, float* acc, int64_t ld_acc) {
    for (int row = 0; row < rows; row++) {
        for (int d = 0; d < dim; d++) {
            float sum = acc[row * ld_acc + d];
            for (int64_t i = begin; i < end; i++) {
                sum = std::fma(weights[row * ld + i], load(type, values, i * dim + d), sum);
            }
            acc[row * ld_acc + d] = sum;
        }
    }
}

void blend(float* total, float keep, const float* part, float take, int dim) {
    for (int d = 0; d < dim; d++) total[d] = std::fma(total[d], keep, part[d] * take);
}

}  // namespace

extern const AttentionKernels attention_scalar = {widen, narrow, scores, weigh, accumulate, blend};

const AttentionKernels& attention_kernels(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return attention_avx2;
#endif
    (void)isa;
    return attention_scalar;
}

}  // namespace octavo
