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
