// Paged key and value memory: where each number of a position lies, and how it is written and read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/kernels.h"

namespace octavo {

// Zeroed pages of the system, handed out when they are first written.
class LazyMemory {
  public:
    LazyMemory() = default;
    explicit LazyMemory(size_t size_bytes);  // throws std::bad_alloc
    ~LazyMemory();
    LazyMemory(LazyMemory&& other) noexcept;
    LazyMemory& operator=(LazyMemory&& other) noexcept;
    LazyMemory(const LazyMemory&) = delete;
    LazyMemory& operator=(const LazyMemory&) = delete;

    char* data() const { return data_; }

  private:
    char* data_ = nullptr;
    size_t size_bytes_ = 0;
};

// Positions [begin, end) of one head, begin a multiple of 8: keys [groups, dim, 8] and values
// [end - begin, padded_dim] of one type. Lanes behind `end` hold anything.
struct KvSpan {
    const void* keys;
    const void* values;
    int begin;
    int end;
};

// Spans that cover a partition at most: as many as it has groups.
constexpr int max_spans = partition_size / 8;

// The cache of one layer. Block b holds, for each head h, `block_size` positions:
//
//     keys   [b][h][position / 8][dim][position % 8]   eight positions side by side, one a lane
//     values [b][h][position][padded_dim]              dim rounded up to 8, padded with zeros
//
// The last group of a block is padded when block_size is no multiple of 8.
class KvLayer {
  public:
    KvLayer(KvType type, int heads, int dim, int64_t num_blocks, int block_size);

    // One position's keys and values, each [heads * dim].
    void write(int64_t slot, const float* keys, const float* values,
               const AttentionKernels& kernels);

    // Widens the positions [begin, end) of one head, begin a multiple of partition_size, to
    // keys [groups, dim, 8] and values [end - begin, padded_dim]. Lanes behind `end` hold anything.
    void read(const int32_t* block_table, int head, int begin, int end, float* keys, float* values,
              const AttentionKernels& kernels) const;

    // The same positions where they lie, told relative to `begin`; returns how many spans these
    // are. Only if has_spans().
    int spans(const int32_t* block_table, int head, int begin, int end, KvSpan* out) const;

    // Whether no block cuts a group of eight positions in two.
    bool has_spans() const { return block_size_ % 8 == 0; }

    KvType type() const { return type_; }

    int padded_dim() const { return padded_dim_; }

  private:
    int64_t key_index(int64_t block, int head) const {
        return (block * heads_ + head) * groups_ * 8 * dim_;
    }
    int64_t value_index(int64_t block, int head) const {
        return (block * heads_ + head) * block_size_ * padded_dim_;
    }
    void read_positions(const int32_t* block_table, int head, int begin, int end, float* keys,
                        float* values, const AttentionKernels& kernels) const;

    KvType type_;
    int heads_;
    int dim_;
    int padded_dim_;
    int block_size_;
    int groups_;  // of eight positions a block
    int64_t item_bytes_;
    LazyMemory keys_;
    LazyMemory values_;
};

}  // namespace octavo
