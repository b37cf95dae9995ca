// The executor: check a step and run its phases.
#include "executor/executor.h"

#include <algorithm>
#include <stdexcept>

#include "executor/split.h"

namespace octavo {

namespace {

// Tokens that run together at most: their values then stay in the last-level cache. The bits of a
// token do not depend on it.
constexpr int64_t most_tokens = 512;

double seconds(std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

Executor::Executor(Program program, int threads, Isa isa, KvType kv_type)
    : program_(std::move(program)),
      plan_(make_plan(program_)),
      isa_(isa),
      kv_type_(kv_type),
      attention_(attention_kernels(isa)),
      pool_(threads),
      plan_of_op_(program_.ops.size(), -1),
      progress_(plan_.phases.size()),
      scratch_(static_cast<size_t>(threads)),
      sampler_(program_.vocab_size, threads, isa) {
    for (size_t i = 0; i < program_.ops.size(); i++) {
        const Op& op = program_.ops[i];
        if (op.kind != OpKind::attention) continue;
        const int group = program_.layers[static_cast<size_t>(op.layer)].group;
        size_t at = 0;
        while (at < shapes_.size() &&
               !(shapes_[at].same_tasks(op.attention) && plan_groups_[at] == group)) {
            at++;
        }
        if (at == shapes_.size()) {
            shapes_.push_back(op.attention);
            plan_groups_.push_back(group);
        }
        plan_of_op_[i] = static_cast<int>(at);
        for (AttentionScratch& scratch : scratch_) scratch.reserve(op.attention);
    }
    attention_plans_.resize(shapes_.size());
    packed_.resize(program_.matrices.size());
}

void Executor::allocate_cache(int64_t num_blocks, int block_size) {
    cache_.clear();  // free the old memory first
    for (const CacheLayer& layer : program_.layers) {
        cache_.emplace_back(kv_type_, layer.kv_heads, layer.dim, num_blocks, block_size);
    }
    num_blocks_ = num_blocks;
    block_size_ = block_size;
}

void Executor::check(const StepInput& input) const {
    const auto need = [](bool true_, const char* message) {
        if (!true_) throw std::out_of_range(message);
    };
    need(!cache_.empty() || program_.layers.empty(), "no cache is allocated");
    int64_t vocabulary = 0;
    for (const Op& op : program_.ops) {
        if (op.kind == OpKind::embed) {
            vocabulary = program_.matrices[static_cast<size_t>(op.matrix)].rows;
        }
    }
    for (int64_t t = 0; t < input.tokens; t++) {
        need(input.token_ids[t] >= 0 && input.token_ids[t] < vocabulary,
             "a token id is not below the rows of the embedding");
    }
    for (int64_t r = 0; r < input.rows; r++) {
        need(input.logits_rows[r] >= (r > 0 ? input.logits_rows[r - 1] : 0) &&
                 input.logits_rows[r] < input.tokens,
             "logits_rows must be ascending indices of the step's tokens");
    }
    for (size_t g = 0; g < input.sequences.size(); g++) {
        const Sequences& sequences = input.sequences[g];
        need(sequences.query_starts[0] == 0 &&
                 sequences.query_starts[sequences.count] == input.tokens,
             "query_starts must lead from 0 to the step's tokens");
        for (int64_t t = 0; t < input.tokens; t++) {
            need(input.slots[g][t] >= 0 && input.slots[g][t] < num_blocks_ * block_size_,
                 "a slot is outside the cache");
        }
        for (int64_t s = 0; s < sequences.count; s++) {
            const int64_t count = sequences.query_starts[s + 1] - sequences.query_starts[s];
            const int64_t context = sequences.context_lens[s];
            const int64_t blocks = (context + block_size_ - 1) / block_size_;
            need(count >= 0 && context >= count, "a context is shorter than its new tokens");
            need(blocks <= sequences.table_width, "a block table is shorter than its context");
            for (int64_t b = 0; b < blocks; b++) {
                const int32_t block = sequences.block_tables[s * sequences.table_width + b];
                need(block >= 0 && block < num_blocks_, "a block is outside the cache");
            }
        }
    }
}

void Executor::forward(const StepInput& input) {
    finish_loading();
    check(input);
    op_start_.assign(program_.ops.size(), 0.0);
    op_duration_.assign(program_.ops.size(), 0.0);
    const int64_t stride = plan_.values[static_cast<size_t>(plan_.hidden)].stride;
    hidden_rows_ = 0;
    hidden_.resize(static_cast<size_t>(input.rows * stride));
    for (int64_t begin = 0; begin < input.tokens; begin += most_tokens) {
        const int64_t end = std::min(begin + most_tokens, input.tokens);
        run_tokens(input, begin, end);
        // The gather: rows are ascending, so these follow those of earlier tokens.
        const auto start = Clock::now();
        for (; hidden_rows_ < input.rows && input.logits_rows[hidden_rows_] < end; hidden_rows_++) {
            const float* row = value(plan_.hidden, input.logits_rows[hidden_rows_] - begin);
            std::copy(row, row + stride, hidden_.begin() + hidden_rows_ * stride);
        }
        if (profiling_) record(plan_.gather, start);
    }
}

void Executor::run_tokens(const StepInput& input, int64_t begin, int64_t end) {
    tokens_ = end - begin;
    token_ids_ = input.token_ids + begin;
    positions_ = input.positions + begin;
    slots_.clear();
    for (const int64_t* slots : input.slots) slots_.push_back(slots + begin);

    // The sequences as far as these tokens are concerned: later tokens are not in the cache yet.
    sequences_ = input.sequences;
    for (Sequences& sequences : sequences_) {
        starts_.assign(1, 0);
        contexts_.clear();
        for (int64_t s = 0; s < sequences.count; s++) {
            const int64_t first = sequences.query_starts[s], last = sequences.query_starts[s + 1];
            const int64_t until = std::clamp(last, begin, end);
            starts_.push_back(static_cast<int32_t>(until - begin));
            const int64_t later = last - std::clamp(until, first, last);
            contexts_.push_back(static_cast<int32_t>(sequences.context_lens[s] - later));
        }
    }
    for (Sequences& sequences : sequences_) {
        sequences.query_starts = starts_.data();
        sequences.context_lens = contexts_.data();
    }

    const size_t floats = static_cast<size_t>(plan_.floats_per_token * tokens_);
    if (arena_.size() < floats) arena_ = std::vector<float>(floats);
    int64_t stored = 0;
    for (size_t i = 0; i < shapes_.size(); i++) {
        attention_plans_[i].make(shapes_[i], sequences_[static_cast<size_t>(plan_groups_[i])]);
        stored = std::max(stored, attention_plans_[i].stored_floats());
    }
    if (stored_.size() < static_cast<size_t>(stored)) stored_.resize(static_cast<size_t>(stored));
    for (Progress& progress : progress_) progress.restart();

    pool_.run([this](int thread) {
        for (size_t i = 0; i < plan_.phases.size(); i++) {
            if (profiling_) {
                run_profiled(plan_.phases[i], progress_[i], thread);
            } else {
                run_phase(plan_.phases[i], progress_[i], thread);
            }
        }
    });
}

void Executor::run_phase(const Phase& phase, Progress& progress, int thread) {
    switch (phase.kind) {
        case Phase::Kind::local: {
            const int64_t piece = piece_of(tokens_, pool_.size(), 4);
            pool_.share_out(progress, pieces(tokens_, piece), [&](int i) {
                const int64_t end = std::min((i + 1) * piece, tokens_);
                for (const LocalStep& step : phase.steps) run_local(step, i * piece, end, thread);
            });
            return;
        }
        case Phase::Kind::linears: {
            // Many tokens make long pieces, which need not be many.
            const int64_t units = units_of_linears(phase.ops);
            const int64_t piece = piece_of(units, pool_.size(), tokens_ < 64 ? 6 : 2);
            pool_.share_out(progress, pieces(units, piece), [&](int i) {
                run_linears(phase.ops, i * piece, std::min((i + 1) * piece, units));
            });
            return;
        }
        case Phase::Kind::attend:
            run_attend(program_.ops[static_cast<size_t>(phase.ops[0])], progress, thread);
    }
}

// The same, operation by operation, with fixed shares and a barrier after each: for the profile.
void Executor::run_profiled(const Phase& phase, Progress& progress, int thread) {
    const auto timed = [&](int op, const auto& run) {
        const auto start = Clock::now();
        run();
        pool_.barrier();
        if (thread == 0) record(op, start);
    };
    const Range tokens = share(tokens_, thread, pool_.size());
    for (const LocalStep& step : phase.steps) {
        timed(step.op, [&] { run_local(step, tokens.begin, tokens.end, thread); });
    }
    for (const int op : phase.ops) {
        timed(op, [&] {
            if (phase.kind == Phase::Kind::attend) {
                return run_attend(program_.ops[static_cast<size_t>(op)], progress, thread);
            }
            const Range units = share(units_of_linears({op}), thread, pool_.size());
            run_linears({op}, units.begin, units.end);
        });
    }
}

Activations Executor::activations(int index) {
    Activations input;
    input.x = value(index, 0);
    input.ld_x = plan_.values[static_cast<size_t>(index)].stride;
    if (plan_.terms[static_cast<size_t>(index)] > 0) {
        input.q8 = quantised(index);
        input.terms = plan_.terms[static_cast<size_t>(index)];
    }
    return input;
}

int64_t Executor::units_of_linears(const std::vector<int>& ops) const {
    int64_t units = 0;
    for (const int op : ops) {
        const int matrix = program_.ops[static_cast<size_t>(op)].matrix;
        units += units_of(packed_[static_cast<size_t>(matrix)]->tiles());
    }
    return units;
}

// The units of all linears stand in one row; this computes a stretch of it.
void Executor::run_linears(const std::vector<int>& ops, int64_t stretch_begin,
                           int64_t stretch_end) {
    int64_t first = 0;
    for (const int index : ops) {
        const Op& op = program_.ops[static_cast<size_t>(index)];
        const PackedLinear& weights = *packed_[static_cast<size_t>(op.matrix)];
        const int64_t count = units_of(weights.tiles());
        const int64_t begin = std::max(stretch_begin, first) - first;
        const int64_t end = std::min(stretch_end, first + count) - first;
        first += count;
        if (begin >= end) continue;
        const float* bias =
            op.vector < 0 ? nullptr : program_.vectors[static_cast<size_t>(op.vector)].data();
        linear_tiles(weights, activations(op.inputs[0]), 0, tokens_, begin * unit_tiles,
                     std::min(end * unit_tiles, weights.tiles()), value(op.output, 0),
                     plan_.values[static_cast<size_t>(op.output)].stride, bias, isa_);
    }
}

const AttentionPlan& Executor::attention_plan(const Op& op) const {
    return attention_plans_[static_cast<size_t>(
        plan_of_op_[static_cast<size_t>(&op - program_.ops.data())])];
}

AttentionInput Executor::attention_input(const Op& op) {
    AttentionInput input;
    input.q = value(op.inputs[0], 0);
    input.ld_q = plan_.values[static_cast<size_t>(op.inputs[0])].stride;
    input.out = value(op.output, 0);
    input.ld_out = plan_.values[static_cast<size_t>(op.output)].stride;
    input.stored = stored_.data();
    return input;
}

void Executor::run_attend(const Op& op, Progress& progress, int thread) {
    const AttentionPlan& plan = attention_plan(op);
    const AttentionInput input = attention_input(op);
    const size_t group = static_cast<size_t>(program_.layers[static_cast<size_t>(op.layer)].group);
    pool_.share_out(progress, static_cast<int>(plan.tasks().size()), [&](int i) {
        attend(plan.tasks()[static_cast<size_t>(i)], op.attention, sequences_[group], plan,
               cache_[static_cast<size_t>(op.layer)], input, attention_,
               scratch_[static_cast<size_t>(thread)]);
    });
}

void Executor::record(int op, Clock::time_point start) {
    const size_t at = static_cast<size_t>(op);
    if (op_duration_[at] == 0.0) op_start_[at] = seconds(start);
    op_duration_[at] += std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<OpTime> Executor::profile(bool enabled) {
    profiling_ = enabled;
    std::vector<OpTime> times;
    times.swap(times_);
    return times;
}

}  // namespace octavo
