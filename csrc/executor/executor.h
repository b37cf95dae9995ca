// Runs a program: one call a step, all threads walk the phases together.
//
// Called from one thread at a time. Sizes and indices of a step are checked before it runs; kernels
// then neither allocate, lock nor throw. The sampler allocates for rows that need it, and a row for
// which there is no memory fails alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "attention/attention.h"
#include "executor/plan.h"
#include "executor/program.h"
#include "executor/thread_pool.h"
#include "linear/linear.h"
#include "sampler/sampler.h"

namespace octavo {

// The flat arrays of octavo.backends.base.Batch, a group's slots and tables each.
struct StepInput {
    int64_t tokens = 0;
    int64_t rows = 0;
    const int32_t* token_ids = nullptr;    // [tokens]
    const int32_t* positions = nullptr;    // [tokens]
    const int32_t* logits_rows = nullptr;  // [rows]
    std::vector<const int64_t*> slots;     // [tokens]
    std::vector<Sequences> sequences;      // query_starts and context_lens are the same in each
};

// Time of an operation in one step, in seconds; start_s counts from the start of the steady clock.
struct OpTime {
    int op;
    double start_s;
    double duration_s;
};

class Executor {
  public:
    Executor(Program program, int threads, Isa isa, KvType kv_type);
    ~Executor();

    // Packs the weights in a thread of its own; what needs them waits. The raw memory of all
    // matrices but that of an embedding is not read after.
    void begin_loading();
    // Waits, and throws what went wrong. One caller at a time.
    void finish_loading();
    // Stops after the pieces at hand; finish_loading then throws std::runtime_error.
    void abandon_loading() { abandoned_ = true; }

    // Forgets what was cached. num_blocks and block_size are positive.
    void allocate_cache(int64_t num_blocks, int block_size);

    // Runs the step up to the hidden rows of its logits. Throws std::out_of_range or
    // std::invalid_argument for a step that does not fit the program or the cache, and computes
    // nothing then.
    void forward(const StepInput& input);

    // The head, then the sampler, over rows of the last `forward`; rules and results for all rows.
    void sample(const std::vector<RowRules>& rules, std::vector<RowResult>& results);

    // Returns and clears what was recorded; then records or stops.
    std::vector<OpTime> profile(bool enabled);

    int threads() const { return pool_.size(); }
    size_t packed_bytes() const;
    int64_t arena_bytes() const { return static_cast<int64_t>(arena_.size() * sizeof(float)); }

  private:
    using Clock = std::chrono::steady_clock;

    void pack(const std::vector<bool>& multiplied);
    void check(const StepInput& input) const;
    void run_tokens(const StepInput& input, int64_t begin, int64_t end);
    void run_phase(const Phase& phase, Progress& progress, int thread);
    void run_profiled(const Phase& phase, Progress& progress, int thread);
    void run_local(const LocalStep& step, int64_t begin, int64_t end, int thread);
    int64_t units_of_linears(const std::vector<int>& ops) const;
    void run_linears(const std::vector<int>& ops, int64_t begin, int64_t end);
    void run_attend(const Op& op, Progress& progress, int thread);
    void compute_logits(int64_t begin, int64_t end);

    float* value(int index, int64_t token) {
        const Place& place = plan_.values[static_cast<size_t>(index)];
        return arena_.data() + place.offset * tokens_ + place.stride * token;
    }
    Q8Block* quantised(int index) {
        const Place& place = plan_.quantised[static_cast<size_t>(index)];
        return reinterpret_cast<Q8Block*>(arena_.data() + place.offset * tokens_);
    }
    float* angles(int rope, int64_t token) {
        const Place& place = plan_.angles[static_cast<size_t>(rope)];
        return arena_.data() + place.offset * tokens_ + place.stride * token;
    }
    Activations activations(int index);
    const AttentionPlan& attention_plan(const Op& op) const;
    AttentionInput attention_input(const Op& op);

    // Profile: thread 0 adds the time since `start` to an operation.
    void record(int op, Clock::time_point start);

    Program program_;
    Plan plan_;
    Isa isa_;
    KvType kv_type_;
    const AttentionKernels& attention_;
    ThreadPool pool_;
    std::thread loader_;
    std::exception_ptr load_error_;
    std::atomic<bool> abandoned_{false};

    std::vector<std::unique_ptr<PackedLinear>> packed_;  // by matrix; null: only embedded
    std::vector<KvLayer> cache_;                         // by layer
    int64_t num_blocks_ = 0;
    int block_size_ = 0;

    // Of the tokens that are being run.
    int64_t tokens_ = 0;
    const int32_t* token_ids_ = nullptr;
    const int32_t* positions_ = nullptr;
    std::vector<const int64_t*> slots_;
    std::vector<Sequences> sequences_;
    std::vector<int32_t> starts_, contexts_;
    std::vector<AttentionShape> shapes_;          // different ones of the program
    std::vector<AttentionPlan> attention_plans_;  // by (shape, group)
    std::vector<int> plan_groups_;
    std::vector<int> plan_of_op_;     // by op
    std::vector<Progress> progress_;  // by phase

    std::vector<float> arena_;
    std::vector<float> stored_;  // partitions of attention
    std::vector<AttentionScratch> scratch_;
    std::vector<float> hidden_;  // [rows, stride]
    int64_t hidden_rows_ = 0;
    std::vector<Q8Block> hidden_q8_;
    std::vector<float> logits_;
    Sampler sampler_;

    bool profiling_ = false;
    std::vector<OpTime> times_;
    std::vector<double> op_start_, op_duration_;
};

}  // namespace octavo
