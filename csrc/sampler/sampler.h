// From a row of logits to a token: the C++ twin of octavo.backends.sampler, in the same order. A
// row's result depends on that row and its rules alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "linear/isa.h"

namespace octavo {

template <typename Item>
struct Span {
    const Item* data = nullptr;
    int64_t size = 0;
    bool given = false;  // an empty list is not the same as none

    const Item* begin() const { return data; }
    const Item* end() const { return data + size; }
};

// As octavo.backends.base.RowSampling.
struct RowRules {
    double temperature = 0.0;
    int64_t top_k = 0;
    double top_p = 1.0;
    double min_p = 0.0;
    uint64_t seed = 0;
    uint64_t position = 0;
    double repetition_penalty = 1.0;
    double presence_penalty = 0.0;
    double frequency_penalty = 0.0;
    Span<int32_t> seen_ids, output_ids, output_counts, bias_ids, allowed_ids, banned_ids;
    Span<float> bias_values;
    Span<int32_t> mask;  // packed bits, lowest first
    int64_t target = -1;
    int64_t num_logprobs = -1;
};

struct RowResult {
    int32_t token = 0;
    std::string error;  // empty: none
    float chosen = 0.0f;
    int64_t rank = 0;
    std::vector<int32_t> top_ids;
    std::vector<float> top_values;
};

// h = mix(mix(seed + g) + (position + 1) * g), g = 0x9E3779B97F4A7C15; (h >> 11) / 2^53.
double uniform(uint64_t seed, uint64_t position);

class Sampler {
  public:
    Sampler(int64_t vocab_size, int threads, Isa isa);

    // Floats from one row of logits to the next; what stands behind vocab_size is not looked at.
    int64_t row_stride() const { return (vocab_size_ + 15) / 16 * 16; }

    // logits: [vocab_size], not changed. thread: whose memory to use; it grows to what the rules
    // need, and stays. Throws std::bad_alloc.
    void sample(const float* logits, const RowRules& rules, RowResult& result, int thread);

  private:
    struct Scratch {
        std::vector<float> masked;  // logits under the grammar's mask
        std::vector<float> scores;  // after the rules
        std::vector<double> wide;   // weights, or scores while penalties are applied
        std::vector<float> heap;    // for the k largest
        std::vector<std::pair<double, int32_t>> nucleus;
        std::vector<double> sums;     // of blocks of weights
        std::vector<double> buckets;  // of weights by size
    };

    bool check_ids(const RowRules& rules, RowResult& result) const;
    const float* masked(const float* logits, const RowRules& rules, RowResult& result,
                        Scratch& scratch) const;
    int32_t choose(const float* raw, const RowRules& rules, Scratch& scratch) const;
    const float* restricted(const float* raw, const RowRules& rules, Scratch& scratch) const;
    void penalise(const RowRules& rules, Scratch& scratch) const;
    int32_t draw(const float* scores, const RowRules& rules, Scratch& scratch) const;
    void cut_nucleus(double top_p, Scratch& scratch) const;
    void log_probabilities(const float* raw, const RowRules& rules, RowResult& result,
                           Scratch& scratch) const;

    int64_t vocab_size_;
    Isa isa_;
    std::vector<Scratch> scratch_;
};

}  // namespace octavo
