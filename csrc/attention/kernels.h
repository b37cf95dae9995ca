// The inner loops of attention, one table of them an instruction set. All work on one partition of
// the context: at most `partition_size` positions that begin at a multiple of it, of one head of
// keys and values.
//
// Every score has one accumulator over the head's dimensions in ascending order; every output has
// one over the positions in ascending order. So it changes nothing how many rows (queries) are
// computed together, nor into how many calls a range of positions is cut.
#pragma once

#include <cstdint>

#include "linear/isa.h"

namespace octavo {

constexpr int partition_size = 256;  // positions; a multiple of 8
constexpr int max_rows = 6;          // rows that `scores` and `accumulate` take at most

enum class KvType { f32, f16, bf16 };

struct AttentionKernels {
    // `count` numbers from cache memory to fp32; count is a multiple of 8.
    void (*widen)(KvType type, const void* from, int64_t count, float* to);

    // `count` numbers to the cache's type, rounded half to even.
    void (*narrow)(KvType type, const float* from, int64_t count, void* to);

    // out[row * ld + 8 * group + lane] = scale * (q[row] . key), where keys are
    // [groups, dim, 8 positions] of the given type.
    void (*scores)(const float* const* q, int rows, KvType type, const void* keys, int groups,
                   int dim, float scale, float* out, int64_t ld);

    // Scores to weights exp(score - max), in place; 0 outside [begin, end) up to the next multiple
    // of 8 behind `end` and from the one before `begin`. Returns their sum: position i belongs to
    // lane i % 8. 0 <= begin < end <= partition_size.
    float (*weigh)(float* scores, int begin, int end, float* max);

    // acc[row * ld_acc + d] += sum over the positions [begin, end) of weights[row * ld + position]
    // * values[position * dim + d], values of the given type; dim is a multiple of 8.
    void (*accumulate)(const float* weights, int64_t ld, int rows, KvType type, const void* values,
                       int begin, int end, int dim, float* acc, int64_t ld_acc);

    // total = total * keep + part * take, over `dim` numbers, a multiple of 8.
    void (*blend)(float* total, float keep, const float* part, float take, int dim);
};

const AttentionKernels& attention_kernels(Isa isa);

extern const AttentionKernels attention_scalar;
extern const AttentionKernels attention_avx2;

}  // namespace octavo
