// Paged attention: the plan of a step, one task, the merging of partitions.
#include "attention/attention.h"

#include <algorithm>
#include <limits>

#include "math/exp.h"

namespace octavo {

namespace {

constexpr int tile_row_target = 48;  // rows (queries times heads of a group) a task holds at most
constexpr int most_direct_rows =
    12;                          // up to so many read the cache as it is, without widening first
constexpr int split_tokens = 8;  // sequences with at most so many tokens are cut by partitions

// Tokens a task takes: its rows share the keys and values once these are widened.
int tile_tokens(const AttentionShape& shape) {
    return std::max(1, tile_row_target / shape.group());
}

int first_seen(const AttentionShape& shape, int position) {
    return shape.window > 0 ? std::max(0, position + 1 - shape.window) : 0;
}

// The fold of the partitions: total = total * exp(max - new max) + part * exp(part's max - new
// max).
void fold(float* total, const float* part, int padded_dim, const AttentionKernels& kernels) {
    float& max = total[padded_dim];
    float& sum = total[padded_dim + 1];
    const float part_max = part[padded_dim], part_sum = part[padded_dim + 1];
    const float highest = part_max > max ? part_max : max;
    const float keep = exp_f32(max - highest), take = exp_f32(part_max - highest);
    kernels.blend(total, keep, part, take, padded_dim);
    sum = std::fma(sum, keep, part_sum * take);
    max = highest;
}

void clear(float* total, int padded_dim) {
    std::fill(total, total + padded_dim + 2, 0.0f);
    total[padded_dim] = -std::numeric_limits<float>::infinity();
}

void put_out(const float* total, const AttentionShape& shape, float* out) {
    const float inverse = 1.0f / total[shape.padded_dim() + 1];
    for (int d = 0; d < shape.dim; d++) out[d] = total[d] * inverse;
}

// One query of a task within one partition: sees [begin, end), relative to the partition.
struct Row {
    const float* q;
    int begin;
    int end;
    int64_t index;  // in the task
};

// Where a task finds the keys and values of a partition: in the cache, or widened once for many
// rows.
struct Source {
    KvType type;
    int count;
    KvSpan spans[max_spans];
};

// Adds the positions [begin, end) to the rows' weighted values, span by span.
void accumulate(const Source& source, const float* weights, int rows, int begin, int end,
                const AttentionShape& shape, const AttentionKernels& kernels, float* part) {
    for (int i = 0; i < source.count; i++) {
        const KvSpan& span = source.spans[i];
        const int from = std::max(begin, span.begin), to = std::min(end, span.end);
        if (from >= to) continue;
        kernels.accumulate(weights + span.begin, partition_size, rows, source.type, span.values,
                           from - span.begin, to - span.begin, shape.padded_dim(), part,
                           entry_floats(shape));
    }
}

// (max, sum, weighted values) of up to max_rows rows over one partition, from scratch.
void compute_rows(const Row* rows, int count, const Source& source, const AttentionShape& shape,
                  const AttentionKernels& kernels, AttentionScratch& scratch) {
    const int padded_dim = shape.padded_dim();
    const int64_t ld = partition_size, ld_part = entry_floats(shape);
    float* scores = scratch.scores.data();
    float* part = scratch.part.data();

    const float* q[max_rows];
    int first = partition_size, last = 0, joint_begin = 0, joint_end = partition_size;
    for (int r = 0; r < count; r++) {
        q[r] = rows[r].q;
        first = std::min(first, rows[r].begin);
        last = std::max(last, rows[r].end);
        joint_begin = std::max(joint_begin, rows[r].begin);
        joint_end = std::min(joint_end, rows[r].end);
    }
    for (int i = 0; i < source.count; i++) {
        const KvSpan& span = source.spans[i];
        const int from = std::max(first, span.begin) / 8 * 8, to = std::min(last, span.end);
        if (from >= to) continue;
        const int64_t skipped = static_cast<int64_t>(from - span.begin) * shape.dim;
        const int64_t item_bytes = source.type == KvType::f32 ? 4 : 2;
        kernels.scores(q, count, source.type,
                       static_cast<const char*>(span.keys) + skipped * item_bytes,
                       (to - from + 7) / 8, shape.dim, shape.scale, scores + from, ld);
    }
    for (int r = 0; r < count; r++) {
        float* entry = part + r * ld_part;
        std::fill(entry, entry + padded_dim, 0.0f);
        entry[padded_dim + 1] =
            kernels.weigh(scores + r * ld, rows[r].begin, rows[r].end, &entry[padded_dim]);
    }

    // What all rows see is accumulated together, what only some see row by row, in order.
    joint_end = std::max(joint_end, joint_begin);
    for (int r = 0; r < count; r++) {
        accumulate(source, scores + r * ld, 1, rows[r].begin, std::min(joint_begin, rows[r].end),
                   shape, kernels, part + r * ld_part);
    }
    accumulate(source, scores, count, joint_begin, joint_end, shape, kernels, part);
    for (int r = 0; r < count; r++) {
        accumulate(source, scores + r * ld, 1, std::max(joint_end, rows[r].begin), rows[r].end,
                   shape, kernels, part + r * ld_part);
    }
}

}  // namespace

void AttentionPlan::make(const AttentionShape& shape, const Sequences& sequences) {
    tasks_.clear();
    const size_t tokens = static_cast<size_t>(sequences.query_starts[sequences.count]);
    stored_at_.assign(tokens, -1);
    partitions_.assign(tokens, 0);
    first_.assign(tokens, 0);
    stored_floats_ = 0;
    const int tile = tile_tokens(shape);
    for (int s = 0; s < sequences.count; s++) {
        const int begin = sequences.query_starts[s], end = sequences.query_starts[s + 1];
        if (begin == end) continue;
        const int context = sequences.context_lens[s];
        const int first_position = context - (end - begin);
        const int lowest = first_seen(shape, first_position) / partition_size;
        const int highest = (context - 1) / partition_size;
        const bool split = end - begin <= split_tokens && highest > lowest;
        if (split) {
            for (int t = begin; t < end; t++) {
                const int position = first_position + t - begin;
                const size_t at = static_cast<size_t>(t);
                first_[at] = first_seen(shape, position) / partition_size;
                partitions_[at] = position / partition_size - first_[at] + 1;
                stored_at_[at] = stored_floats_;
                stored_floats_ += entry_floats(shape) * shape.heads * partitions_[at];
            }
        }
        // The last tokens see most: they come first, so that threads end at about the same time.
        for (int tile_end = end; tile_end > begin; tile_end -= tile) {
            const int tile_begin = std::max(begin, tile_end - tile);
            for (int head = 0; head < shape.kv_heads; head++) {
                if (!split) {
                    tasks_.push_back({s, head, tile_begin, tile_end, -1});
                    continue;
                }
                for (int p = lowest; p <= highest; p++) {
                    tasks_.push_back({s, head, tile_begin, tile_end, p});
                }
            }
        }
    }
}

void AttentionScratch::reserve(const AttentionShape& shape) {
    const auto grow = [](std::vector<float>& memory, int64_t count) {
        if (memory.size() < static_cast<size_t>(count)) memory.resize(static_cast<size_t>(count));
    };
    grow(keys, int64_t{partition_size} * shape.dim);
    grow(values, int64_t{partition_size} * shape.padded_dim());
    grow(scores, int64_t{partition_size} * max_rows);
    grow(part, entry_floats(shape) * max_rows);
    grow(total, entry_floats(shape) * tile_tokens(shape) * shape.group());
}

void attend(const AttentionTask& task, const AttentionShape& shape, const Sequences& sequences,
            const AttentionPlan& plan, const KvLayer& cache, const AttentionInput& input,
            const AttentionKernels& kernels, AttentionScratch& scratch) {
    const int group = shape.group(), padded_dim = shape.padded_dim();
    const int64_t entry = entry_floats(shape);
    const int start = sequences.query_starts[task.sequence];
    const int context = sequences.context_lens[task.sequence];
    const int first_position = context - (sequences.query_starts[task.sequence + 1] - start);
    const int32_t* table = sequences.block_tables + task.sequence * sequences.table_width;
    const int count = (task.token_end - task.token_begin) * group;
    const int last_position = first_position + task.token_end - 1 - start;

    int partition = task.partition, partition_end = task.partition + 1;
    if (task.partition < 0) {
        partition = first_seen(shape, first_position + task.token_begin - start) / partition_size;
        partition_end = last_position / partition_size + 1;
        for (int r = 0; r < count; r++) clear(scratch.total.data() + r * entry, padded_dim);
    }
    for (; partition < partition_end; partition++) {
        const int base = partition * partition_size;
        const int end = std::min(base + partition_size, last_position + 1);
        if (end <= base) continue;
        Source source;
        if (count <= most_direct_rows && cache.has_spans()) {
            source.type = cache.type();
            source.count = cache.spans(table, task.kv_head, base, end, source.spans);
        } else {
            cache.read(table, task.kv_head, base, end, scratch.keys.data(), scratch.values.data(),
                       kernels);
            source.type = KvType::f32;
            source.count = 1;
            source.spans[0] = {scratch.keys.data(), scratch.values.data(), 0, end - base};
        }
        Row rows[max_rows];
        int taken = 0;
        for (int r = 0; r < count; r++) {
            const int token = task.token_begin + r / group;
            const int position = first_position + token - start;
            const int head = task.kv_head * group + r % group;
            const int row_begin = std::max(0, first_seen(shape, position) - base);
            const int row_end = std::min(partition_size, position + 1 - base);
            if (row_begin < row_end) {
                rows[taken++] = {input.q + token * input.ld_q + head * shape.dim, row_begin,
                                 row_end, r};
            }
            if (taken == 0 || (taken < max_rows && r + 1 < count)) continue;
            compute_rows(rows, taken, source, shape, kernels, scratch);
            for (int i = 0; i < taken; i++) {
                const float* part = scratch.part.data() + i * entry;
                if (task.partition < 0) {
                    fold(scratch.total.data() + rows[i].index * entry, part, padded_dim, kernels);
                    continue;
                }
                const int row_token = task.token_begin + static_cast<int>(rows[i].index) / group;
                const int row_head = task.kv_head * group + static_cast<int>(rows[i].index) % group;
                const int64_t slot = (partition - plan.first_partition(row_token)) * shape.heads;
                float* to = input.stored + plan.stored_at(row_token) + (slot + row_head) * entry;
                std::copy(part, part + padded_dim + 2, to);
            }
            taken = 0;
        }
    }
    if (task.partition >= 0) return;
    for (int r = 0; r < count; r++) {
        const int token = task.token_begin + r / group;
        const int head = task.kv_head * group + r % group;
        put_out(scratch.total.data() + r * entry, shape,
                input.out + token * input.ld_out + head * shape.dim);
    }
}

void merge(int64_t token, const AttentionShape& shape, const AttentionPlan& plan,
           const AttentionInput& input, const AttentionKernels& kernels, float* scratch) {
    if (plan.stored_at(token) < 0) return;
    const int64_t entry = entry_floats(shape);
    const float* stored = input.stored + plan.stored_at(token);
    for (int head = 0; head < shape.heads; head++) {
        clear(scratch, shape.padded_dim());
        for (int p = 0; p < plan.stored_partitions(token); p++) {
            fold(scratch, stored + (p * shape.heads + head) * entry, shape.padded_dim(), kernels);
        }
        put_out(scratch, shape, input.out + token * input.ld_out + head * shape.dim);
    }
}

}  // namespace octavo
