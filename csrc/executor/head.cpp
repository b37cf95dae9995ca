// The executor's last part: the head on the wanted rows, then the sampler.
#include <algorithm>
#include <new>
#include <stdexcept>

#include "executor/executor.h"
#include "executor/split.h"

namespace octavo {

namespace {

// Terms of the head's quantised input: its error goes into the logits as it is.
constexpr int head_terms = 2;

// Rows of logits held at once.
constexpr int64_t most_logits_rows = 64;

}  // namespace

void Executor::compute_logits(int64_t begin, int64_t end) {
    const Op& op = program_.ops[static_cast<size_t>(plan_.head)];
    const PackedLinear& weights = *packed_[static_cast<size_t>(op.matrix)];
    const int64_t stride = plan_.values[static_cast<size_t>(plan_.hidden)].stride;
    const int64_t rows = end - begin, ld = sampler_.row_stride();
    const int64_t tiles = (program_.vocab_size + tile_rows - 1) / tile_rows;
    const float* hidden = hidden_.data() + begin * stride;
    const bool quantise = reads_q8(weights.type());
    if (quantise)
        hidden_q8_.resize(static_cast<size_t>(rows * head_terms * q8_stride(weights.cols())));
    if (logits_.size() < static_cast<size_t>(rows * ld)) {
        logits_ = std::vector<float>(static_cast<size_t>(rows * ld));
    }
    Activations input;
    input.x = hidden;
    input.ld_x = stride;
    input.q8 = quantise ? hidden_q8_.data() : nullptr;
    input.terms = head_terms;
    Progress quantised, multiplied;
    const int64_t units = units_of(tiles);
    const int64_t piece = piece_of(units, pool_.size(), 8);
    pool_.run([&](int) {
        pool_.share_out(quantised, quantise ? static_cast<int>(rows) : 0, [&](int row) {
            quantise_q8(hidden, stride, weights.cols(), head_terms, row, row + 1, hidden_q8_.data(),
                        isa_);
        });
        pool_.share_out(multiplied, pieces(units, piece), [&](int i) {
            const int64_t tile_begin = i * piece * unit_tiles;
            const int64_t tile_end = std::min((i + 1) * piece * unit_tiles, tiles);
            linear_tiles(weights, input, 0, rows, tile_begin, tile_end, logits_.data(), ld, nullptr,
                         isa_);
            if (op.scale == 1.0f) return;
            const int64_t row_end = std::min(tile_end * tile_rows, program_.vocab_size);
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t k = tile_begin * tile_rows; k < row_end; k++) {
                    logits_[static_cast<size_t>(r * ld + k)] *= op.scale;
                }
            }
        });
    });
}

void Executor::sample(const std::vector<RowRules>& rules, std::vector<RowResult>& results) {
    if (static_cast<int64_t>(rules.size()) != hidden_rows_) {
        throw std::invalid_argument("there must be one sampling rule a row of logits");
    }
    results.resize(rules.size());
    for (int64_t begin = 0; begin < hidden_rows_; begin += most_logits_rows) {
        const int64_t end = std::min(begin + most_logits_rows, hidden_rows_);
        const auto start = Clock::now();
        compute_logits(begin, end);
        if (profiling_) record(plan_.head, start);
        std::atomic<int64_t> next{begin};
        pool_.run([&](int thread) {
            for (int64_t r = next.fetch_add(1); r < end; r = next.fetch_add(1)) {
                const size_t at = static_cast<size_t>(r);
                try {
                    sampler_.sample(logits_.data() + (r - begin) * sampler_.row_stride(), rules[at],
                                    results[at], thread);
                } catch (const std::bad_alloc&) {
                    results[at].error = "out of memory";  // short enough to need none
                }
            }
        });
    }
    if (!profiling_) return;
    for (size_t i = 0; i < op_start_.size(); i++) {
        times_.push_back({static_cast<int>(i), op_start_[i], op_duration_[i]});
    }
}

}  // namespace octavo
