// From a program to phases: what threads do together before any goes on, and where values lie.
//
//     local    a unit is a range of tokens and runs a chain of steps on it
//     linears  a unit is a range of output rows of linears that read one input, for all tokens
//     attend   a unit is an attention task
//
// Threads take units one by one; a phase ends when its units are done.
//
// A layer of Llama is local [norm, quantise], linears [q k v], local [rope rope write], attend,
// local [merge, quantise], linears [o], local [add, norm, quantise], linears [gate up],
// local [silu_mul, quantise], linears [down], and the next layer's local begins with its add.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/program.h"

namespace octavo {

enum class StepKind {
    angles,  // cosines and sines of the positions, for one Rope
    embed,
    rms_norm,
    quantise,  // a value to int8 blocks, once for all linears that read it
    rope,
    write,  // keys and values to the cache
    merge,  // the partitions of attention
    silu_mul,
    gelu_mul,
    add,
};

struct LocalStep {
    StepKind kind;
    int op;     // whose time it is
    int value;  // angles: the rope; quantise: the value
};

struct Phase {
    enum class Kind { local, linears, attend } kind;
    std::vector<LocalStep> steps;  // local
    std::vector<int> ops;          // linears: several; attend: one
};

// Memory of one token, in floats; a multiple of 16. Tokens of a value lie `stride` apart from
// `offset` * tokens on.
struct Place {
    int64_t offset = -1;
    int64_t stride = 0;
};

struct Plan {
    std::vector<Phase> phases;
    std::vector<Place> values;     // by value
    std::vector<Place> quantised;  // by value; offset -1: never quantised
    std::vector<int> terms;        // of each quantised value; 0: never quantised
    std::vector<Place> angles;     // by rope
    int64_t floats_per_token = 0;
    int hidden = -1;  // the value whose wanted rows go to the head
    int gather = -1;  // the op that gathers them
    int head = -1;    // the logits op
};

// Throws std::invalid_argument for a program that cannot be run.
Plan make_plan(const Program& program);

}  // namespace octavo
