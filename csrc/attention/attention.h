// Paged attention: cuts a step into tasks for the threads, runs them, merges partitions.
//
// A query's context is cut at absolute multiples of partition_size. Each partition is computed from
// scratch to (max, sum, weighted values), and these are folded in context order. Both are functions
// of the query and its context alone: batch, chunks, threads and tiles change no bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "attention/kernels.h"
#include "attention/kv_cache.h"

namespace octavo {

// What a layer asks for. heads is a multiple of kv_heads; window 0: the whole context.
struct AttentionShape {
    int heads = 0;
    int kv_heads = 0;
    int dim = 0;
    int window = 0;
    float scale = 1.0f;

    int group() const { return heads / kv_heads; }
    int padded_dim() const { return (dim + 7) / 8 * 8; }
    bool same_tasks(const AttentionShape& other) const {
        return heads == other.heads && kv_heads == other.kv_heads && dim == other.dim &&
               window == other.window;
    }
};

// The sequences of a step, as in octavo.backends.base.Batch.
struct Sequences {
    int64_t count = 0;
    const int32_t* query_starts = nullptr;  // [count + 1]
    const int32_t* context_lens = nullptr;  // [count]
    const int32_t* block_tables = nullptr;  // [count, table_width]
    int64_t table_width = 0;
};

// A few tokens of one sequence times one head of keys and values. With `partition` < 0 all of
// their partitions, folded at once; else this one, stored for `merge`.
struct AttentionTask {
    int sequence;
    int kv_head;
    int token_begin;  // in the step
    int token_end;
    int partition;
};

// The tasks of one step for layers of one shape, and where stored partitions lie.
class AttentionPlan {
  public:
    void make(const AttentionShape& shape, const Sequences& sequences);

    const std::vector<AttentionTask>& tasks() const { return tasks_; }
    int64_t stored_floats() const { return stored_floats_; }

    // First float of the stored partitions of a token, or -1 if it has none. They lie
    // [partitions, heads, entry_floats], the first that the token sees first.
    int64_t stored_at(int64_t token) const { return stored_at_[static_cast<size_t>(token)]; }
    int stored_partitions(int64_t token) const { return partitions_[static_cast<size_t>(token)]; }
    int first_partition(int64_t token) const { return first_[static_cast<size_t>(token)]; }

  private:
    std::vector<AttentionTask> tasks_;
    std::vector<int64_t> stored_at_;
    std::vector<int> partitions_;
    std::vector<int> first_;
    int64_t stored_floats_ = 0;
};

// What one thread needs to run tasks.
class AttentionScratch {
  public:
    void reserve(const AttentionShape& shape);

    std::vector<float> keys, values, scores, part, total;
};

// [weighted values (padded_dim), max, sum], rounded up so that entries stay aligned.
inline int64_t entry_floats(const AttentionShape& shape) { return shape.padded_dim() + 8; }

struct AttentionInput {
    const float* q;  // [tokens, heads * dim], ld_q apart
    int64_t ld_q;
    float* out;  // [tokens, heads * dim], ld_out apart
    int64_t ld_out;
    float* stored;
};

// Runs one task.
void attend(const AttentionTask& task, const AttentionShape& shape, const Sequences& sequences,
            const AttentionPlan& plan, const KvLayer& cache, const AttentionInput& input,
            const AttentionKernels& kernels, AttentionScratch& scratch);

// Folds the stored partitions of one token, if it has any, into its output. scratch: padded_dim
// floats.
void merge(int64_t token, const AttentionShape& shape, const AttentionPlan& plan,
           const AttentionInput& input, const AttentionKernels& kernels, float* scratch);

}  // namespace octavo
