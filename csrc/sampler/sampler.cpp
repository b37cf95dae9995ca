// The sampler: masks, rules, penalties, cuts, the draw, log-probabilities.
#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "math/exp.h"
#include "sampler/kernels.h"

namespace octavo {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr int64_t most_heap = 128;

uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// Sixteen buckets for each halving of a weight in (0, 1], the last takes all smaller ones.
constexpr size_t num_buckets = 1024;

size_t bucket_of(double weight) {
    uint64_t one, bits;
    const double largest = 1.0;
    std::memcpy(&one, &largest, sizeof one);
    std::memcpy(&bits, &weight, sizeof bits);
    const uint64_t bucket = (one - bits) >> 48;
    return bucket < num_buckets ? static_cast<size_t>(bucket) : num_buckets - 1;
}

// The k-th largest of `row`, 1 <= k <= count.
float kth_largest(const float* row, int64_t count, int64_t k, std::vector<float>& heap,
                  const SamplerKernels& kernels) {
    if (k > most_heap) {
        heap.assign(row, row + count);
        std::nth_element(heap.begin(), heap.begin() + (k - 1), heap.end(), std::greater<float>());
        return heap[static_cast<size_t>(k - 1)];
    }
    // The k largest so far, the least of them on top: few numbers get past it.
    heap.assign(row, row + k);
    std::make_heap(heap.begin(), heap.end(), std::greater<float>());
    float least = heap.front();
    for (int64_t i = k; (i = kernels.next(row, i, count, least)) < count; i++) {
        if (row[i] == least) continue;
        std::pop_heap(heap.begin(), heap.end(), std::greater<float>());
        heap.back() = row[i];
        std::push_heap(heap.begin(), heap.end(), std::greater<float>());
        least = heap.front();
    }
    return least;
}

}  // namespace

double uniform(uint64_t seed, uint64_t position) {
    constexpr uint64_t golden = 0x9E3779B97F4A7C15u;
    const uint64_t stream = mix(seed + golden);
    return static_cast<double>(mix(stream + (position + 1) * golden) >> 11) * 0x1p-53;
}

Sampler::Sampler(int64_t vocab_size, int threads, Isa isa)
    : vocab_size_(vocab_size), isa_(isa), scratch_(static_cast<size_t>(threads)) {
    for (Scratch& scratch : scratch_) {
        scratch.sums.resize(static_cast<size_t>((vocab_size + sum_block - 1) / sum_block));
        scratch.buckets.resize(num_buckets);
    }
}

void Sampler::sample(const float* logits, const RowRules& rules, RowResult& result, int thread) {
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    result = RowResult();
    if (!check_ids(rules, result)) return;
    const float* raw = masked(logits, rules, result, scratch);
    if (raw == nullptr) return;
    result.token =
        rules.target >= 0 ? static_cast<int32_t>(rules.target) : choose(raw, rules, scratch);
    if (rules.num_logprobs >= 0) log_probabilities(raw, rules, result, scratch);
}

bool Sampler::check_ids(const RowRules& rules, RowResult& result) const {
    if (rules.target >= vocab_size_) {
        result.error = "target " + std::to_string(rules.target) +
                       " is not below the vocabulary of " + std::to_string(vocab_size_);
        return false;
    }
    for (const Span<int32_t>* ids : {&rules.seen_ids, &rules.output_ids, &rules.bias_ids,
                                     &rules.allowed_ids, &rules.banned_ids}) {
        for (const int32_t id : *ids) {
            if (id >= 0 && id < vocab_size_) continue;
            result.error = "token id " + std::to_string(id) + " is not below the vocabulary of " +
                           std::to_string(vocab_size_);
            return false;
        }
    }
    if (rules.output_counts.size != rules.output_ids.size ||
        rules.bias_values.size != rules.bias_ids.size) {
        result.error = "output_counts and bias_values must be as long as their ids";
        return false;
    }
    return true;
}

const float* Sampler::masked(const float* logits, const RowRules& rules, RowResult& result,
                             Scratch& scratch) const {
    const SamplerKernels& kernels = sampler_kernels(isa_);
    float max;
    if (!kernels.highest(logits, vocab_size_, &max)) {
        result.error = "a logit is NaN or infinite";
        return nullptr;
    }
    if (!rules.mask.given) return logits;
    if (rules.mask.size * 32 < vocab_size_) {
        result.error = "the grammar's mask is shorter than the vocabulary";
        return nullptr;
    }
    scratch.masked.resize(static_cast<size_t>(vocab_size_));
    bool any = false;
    for (int64_t i = 0; i < vocab_size_; i++) {
        const bool allowed = static_cast<uint32_t>(rules.mask.data[i / 32]) >> (i % 32) & 1u;
        any = any || allowed;
        scratch.masked[static_cast<size_t>(i)] = allowed ? logits[i] : minus_infinity;
    }
    if (any) return scratch.masked.data();
    result.error = "the grammar allows no token";
    return nullptr;
}

int32_t Sampler::choose(const float* raw, const RowRules& rules, Scratch& scratch) const {
    const SamplerKernels& kernels = sampler_kernels(isa_);
    const float* scores = restricted(raw, rules, scratch);
    const bool repetition = rules.repetition_penalty != 1 && rules.seen_ids.given;
    const bool counted = rules.frequency_penalty != 0 || rules.presence_penalty != 0;
    if (rules.bias_ids.given || repetition || counted) {
        if (scores != scratch.scores.data()) scratch.scores.assign(scores, scores + vocab_size_);
        scores = scratch.scores.data();
        for (int64_t i = 0; i < rules.bias_ids.size; i++) {
            scratch.scores[static_cast<size_t>(rules.bias_ids.data[i])] +=
                rules.bias_values.data[i];
        }
        if (repetition || counted) penalise(rules, scratch);
    }
    if (rules.temperature > 0) return draw(scores, rules, scratch);
    float max;
    kernels.highest(scores, vocab_size_, &max);
    const int64_t first = kernels.next(scores, 0, vocab_size_, max);  // the lowest id of equals
    return static_cast<int32_t>(first < vocab_size_ ? first : 0);
}

// Allowed ids, then banned ids. A rule that would leave no token at all is not applied.
const float* Sampler::restricted(const float* raw, const RowRules& rules, Scratch& scratch) const {
    const SamplerKernels& kernels = sampler_kernels(isa_);
    const float* scores = raw;
    float max;
    if (rules.allowed_ids.given) {
        bool any = false;
        for (const int32_t id : rules.allowed_ids) any = any || raw[id] > minus_infinity;
        if (any) {
            scratch.scores.assign(static_cast<size_t>(vocab_size_), minus_infinity);
            for (const int32_t id : rules.allowed_ids) {
                scratch.scores[static_cast<size_t>(id)] = raw[id];
            }
            scores = scratch.scores.data();
        }
    }
    if (rules.banned_ids.size > 0) {
        // Tried on a copy, which is kept when something is left.
        std::vector<float>& tried = scratch.heap;
        tried.assign(scores, scores + vocab_size_);
        for (const int32_t id : rules.banned_ids) tried[static_cast<size_t>(id)] = minus_infinity;
        kernels.highest(tried.data(), vocab_size_, &max);
        if (max > minus_infinity) {
            scratch.scores.swap(tried);
            scores = scratch.scores.data();
        }
    }
    return scores;
}

// In fp64; an extreme penalty stays a number, so that what is still allowed can still be drawn.
void Sampler::penalise(const RowRules& rules, Scratch& scratch) const {
    constexpr double largest = std::numeric_limits<float>::max();
    std::vector<double>& wide = scratch.wide;
    wide.assign(scratch.scores.begin(), scratch.scores.end());
    if (rules.repetition_penalty != 1) {
        for (const int32_t id : rules.seen_ids) {
            double& score = wide[static_cast<size_t>(id)];
            score = score > 0 ? score / rules.repetition_penalty : score * rules.repetition_penalty;
        }
    }
    for (int64_t i = 0; i < rules.output_ids.size; i++) {
        wide[static_cast<size_t>(rules.output_ids.data[i])] -=
            rules.frequency_penalty * rules.output_counts.data[i] + rules.presence_penalty;
    }
    for (size_t i = 0; i < wide.size(); i++) {
        if (!(scratch.scores[i] > minus_infinity)) continue;
        scratch.scores[i] = static_cast<float>(std::clamp(wide[i], -largest, largest));
    }
}

// Temperature, min_p, top_k, top_p, one number: the token where the cumulative sum passes it.
int32_t Sampler::draw(const float* scores, const RowRules& rules, Scratch& scratch) const {
    const SamplerKernels& kernels = sampler_kernels(isa_);
    float highest;
    kernels.highest(scores, vocab_size_, &highest);
    scratch.wide.resize(static_cast<size_t>(vocab_size_));
    double* weights = scratch.wide.data();
    const double max = highest;
    kernels.weights(scores, vocab_size_, max, rules.temperature, weights);
    if (rules.min_p > 0) {
        for (int64_t i = 0; i < vocab_size_; i++) {
            if (weights[i] < rules.min_p) weights[i] = 0;
        }
    }
    if (rules.top_k > 0 && rules.top_k < vocab_size_) {
        // Compared as scaled numbers: scores that temperature makes equal stay together.
        const float kth = kth_largest(scores, vocab_size_, rules.top_k, scratch.heap, kernels);
        const double limit = (static_cast<double>(kth) - max) / rules.temperature;
        for (int64_t i = 0; i < vocab_size_; i++) {
            if (scores[i] >= kth) continue;
            if ((static_cast<double>(scores[i]) - max) / rules.temperature < limit) weights[i] = 0;
        }
    }
    if (rules.top_p < 1) cut_nucleus(rules.top_p, scratch);

    kernels.block_sums(weights, vocab_size_, scratch.sums.data());
    double total = 0;
    for (const double sum : scratch.sums) total += sum;
    const double at = uniform(rules.seed, rules.position) * total;
    double reached = 0;
    for (size_t block = 0; block < scratch.sums.size(); block++) {
        if (!(reached + scratch.sums[block] > at)) {
            reached += scratch.sums[block];
            continue;
        }
        // In this block, or by another rounding of its sum nowhere: then its last possible token.
        const int64_t begin = static_cast<int64_t>(block) * sum_block;
        const int64_t end = std::min(begin + sum_block, vocab_size_);
        int64_t last = begin;
        for (int64_t i = begin; i < end; i++) {
            if (!(weights[i] > 0)) continue;
            reached += weights[i];
            last = i;
            if (reached > at) break;
        }
        return static_cast<int32_t>(last);
    }
    // The total is not passed (the uniform number is next to 1): the last possible token.
    for (int64_t i = vocab_size_ - 1; i >= 0; i--) {
        if (weights[i] > 0) return static_cast<int32_t>(i);
    }
    return 0;
}

// Drops, from the least likely up, what together is no more than 1 - top_p of the whole. Of equals
// the higher id goes first. The most likely token always stays.
void Sampler::cut_nucleus(double top_p, Scratch& scratch) const {
    const SamplerKernels& kernels = sampler_kernels(isa_);
    double* weights = scratch.wide.data();
    kernels.block_sums(weights, vocab_size_, scratch.sums.data());
    double total = 0;
    for (const double sum : scratch.sums) total += sum;
    const double limit = (1 - top_p) * total;
    // What is below limit / n is dropped for sure, however much of it there is. The rest goes into
    // buckets by size; whole buckets are dropped from the least likely up, and only the one that
    // holds the border is sorted. The most likely token weighs 1 and lies in bucket 0.
    const double least = limit / static_cast<double>(vocab_size_);
    double dropped = 0;
    std::fill(scratch.buckets.begin(), scratch.buckets.end(), 0.0);
    for (int64_t i = 0; i < vocab_size_; i++) {
        if (weights[i] < least) {
            dropped += weights[i];
            weights[i] = 0;
        } else if (weights[i] > 0) {
            scratch.buckets[bucket_of(weights[i])] += weights[i];
        }
    }
    size_t border = num_buckets - 1;
    while (border > 0 && dropped + scratch.buckets[border] <= limit) {
        dropped += scratch.buckets[border--];
    }
    scratch.nucleus.clear();
    for (int64_t i = 0; i < vocab_size_; i++) {
        if (!(weights[i] > 0)) continue;
        const size_t bucket = bucket_of(weights[i]);
        if (bucket > border) weights[i] = 0;
        if (bucket == border) scratch.nucleus.emplace_back(weights[i], static_cast<int32_t>(-i));
    }
    std::sort(scratch.nucleus.begin(), scratch.nucleus.end());
    for (size_t i = 0; i < scratch.nucleus.size(); i++) {
        dropped += scratch.nucleus[i].first;
        if (dropped > limit || (border == 0 && i + 1 == scratch.nucleus.size())) break;
        weights[-scratch.nucleus[i].second] = 0;
    }
}

// log_softmax of the row; rank and order go by the logits themselves.
void Sampler::log_probabilities(const float* raw, const RowRules& rules, RowResult& result,
                                Scratch& scratch) const {
    const SamplerKernels& kernels = sampler_kernels(isa_);
    float highest;
    kernels.highest(raw, vocab_size_, &highest);
    const double total = kernels.sum_exp(raw, vocab_size_, highest);
    const float normaliser = highest + static_cast<float>(std::log(total));
    result.chosen = raw[result.token] - normaliser;
    result.rank = 1 + kernels.count_above(raw, vocab_size_, raw[result.token]);
    const int64_t count = std::min(rules.num_logprobs, vocab_size_);
    if (count == 0) return;
    const float least = kth_largest(raw, vocab_size_, count, scratch.heap, kernels);
    std::vector<int32_t> ids;
    for (int64_t i = 0; (i = kernels.next(raw, i, vocab_size_, least)) < vocab_size_; i++) {
        ids.push_back(static_cast<int32_t>(i));
    }
    std::stable_sort(ids.begin(), ids.end(),
                     [raw](int32_t a, int32_t b) { return raw[a] > raw[b]; });
    ids.resize(static_cast<size_t>(count));
    result.top_values.reserve(ids.size());
    for (const int32_t id : ids) result.top_values.push_back(raw[id] - normaliser);
    result.top_ids = std::move(ids);
}

}  // namespace octavo
