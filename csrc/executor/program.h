// A program as Python hands it over: flat lists that refer to each other by index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "quant/decode.h"

namespace octavo {

// Names and meanings as in octavo.graph.ops.
enum class OpKind {
    embed,
    rms_norm,
    linear,
    rope,
    attention,
    silu_mul,
    gelu_mul,
    add,
    gather,
    logits
};

struct Op {
    OpKind kind;
    std::vector<int> inputs;  // values; not the step's own arrays (ids, positions, rows)
    int output = -1;
    int matrix = -1;     // embed, linear, logits
    int vector = -1;     // rms_norm: the gain, offset included; linear: the bias or -1
    float eps = 0;       // rms_norm
    int64_t groups = 1;  // rms_norm
    float scale = 1;     // embed, logits
    int rope = -1;       // rope: index into Program::ropes
    int64_t heads = 0;   // rope
    int layer = -1;      // attention: index into Program::layers
    AttentionShape attention;
};

// A matrix in its file encoding. The memory must stay while the executor lives: an embedding that
// is not tied is decoded from it row by row.
struct Matrix {
    WeightType type;
    int64_t rows;
    int64_t cols;
    const uint8_t* raw;
    std::vector<int64_t> row_order;  // stored row of each row; empty: they are the same
};

struct Rope {
    int64_t head_dim;
    std::vector<float> frequencies;  // radians a position, for each pair
};

// The cache of one layer belongs to a group of layers that share a block table.
struct CacheLayer {
    int group;
    int kv_heads;
    int dim;
};

struct Program {
    std::vector<int64_t> widths;  // of each value: numbers a token; 0: not a value of the arena
    std::vector<Matrix> matrices;
    std::vector<std::vector<float>> vectors;
    std::vector<Rope> ropes;
    std::vector<CacheLayer> layers;
    std::vector<Op> ops;
    int groups = 0;          // cache groups
    int64_t vocab_size = 0;  // rows of logits that are computed
};

}  // namespace octavo
