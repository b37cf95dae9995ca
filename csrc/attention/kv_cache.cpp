// Paged key and value memory over the system's lazily zeroed pages.
#include "attention/kv_cache.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

namespace octavo {

LazyMemory::LazyMemory(size_t size_bytes) : size_bytes_(size_bytes) {
    if (size_bytes == 0) return;
    void* pages = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(pages);
}

LazyMemory::~LazyMemory() {
    if (data_ != nullptr) munmap(data_, size_bytes_);
}

LazyMemory::LazyMemory(LazyMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

LazyMemory& LazyMemory::operator=(LazyMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
}

KvLayer::KvLayer(KvType type, int heads, int dim, int64_t num_blocks, int block_size)
    : type_(type),
      heads_(heads),
      dim_(dim),
      padded_dim_((dim + 7) / 8 * 8),
      block_size_(block_size),
      groups_((block_size + 7) / 8),
      item_bytes_(type == KvType::f32 ? 4 : 2) {
    keys_ = LazyMemory(static_cast<size_t>(key_index(num_blocks, 0) * item_bytes_));
    values_ = LazyMemory(static_cast<size_t>(value_index(num_blocks, 0) * item_bytes_));
}

void KvLayer::write(int64_t slot, const float* keys, const float* values,
                    const AttentionKernels& kernels) {
    const int64_t block = slot / block_size_;
    const int64_t offset = slot % block_size_;
    for (int head = 0; head < heads_; head++) {
        const int64_t value_at = value_index(block, head) + offset * padded_dim_;
        kernels.narrow(type_, values + head * dim_, dim_, values_.data() + value_at * item_bytes_);

        // Keys are narrowed side by side, then spread: one lane of each of the dim vectors.
        const int64_t key_at = key_index(block, head) + offset / 8 * 8 * dim_ + offset % 8;
        char* out = keys_.data() + key_at * item_bytes_;
        constexpr int piece = 64;
        char narrowed[piece * 4];
        for (int d = 0; d < dim_; d += piece) {
            const int count = dim_ - d < piece ? dim_ - d : piece;
            kernels.narrow(type_, keys + head * dim_ + d, count, narrowed);
            for (int i = 0; i < count; i++) {
                char* to = out + 8 * (d + i) * item_bytes_;
                if (item_bytes_ == 2) {
                    std::memcpy(to, narrowed + 2 * i, 2);
                } else {
                    std::memcpy(to, narrowed + 4 * i, 4);
                }
            }
        }
    }
}

int KvLayer::spans(const int32_t* block_table, int head, int begin, int end, KvSpan* out) const {
    int count = 0;
    for (int position = begin; position < end; count++) {
        const int64_t block = block_table[position / block_size_];
        const int64_t offset = position % block_size_;
        const int left = block_size_ - static_cast<int>(offset);
        const int taken = end - position < left ? end - position : left;
        const int64_t key_at = key_index(block, head) + offset * dim_;
        const int64_t value_at = value_index(block, head) + offset * padded_dim_;
        out[count] = {keys_.data() + key_at * item_bytes_, values_.data() + value_at * item_bytes_,
                      position - begin, position - begin + taken};
        position += taken;
    }
    return count;
}

void KvLayer::read(const int32_t* block_table, int head, int begin, int end, float* keys,
                   float* values, const AttentionKernels& kernels) const {
    if (!has_spans()) return read_positions(block_table, head, begin, end, keys, values, kernels);
    KvSpan all[max_spans];
    const int count = spans(block_table, head, begin, end, all);
    for (int i = 0; i < count; i++) {
        const KvSpan& span = all[i];
        const int64_t positions = span.end - span.begin;
        kernels.widen(type_, span.keys, (positions + 7) / 8 * 8 * dim_, keys + span.begin * dim_);
        kernels.widen(type_, span.values, positions * padded_dim_,
                      values + span.begin * padded_dim_);
    }
}

void KvLayer::read_positions(const int32_t* block_table, int head, int begin, int end, float* keys,
                             float* values, const AttentionKernels& kernels) const {
    for (int position = begin; position < end; position++) {
        const int64_t block = block_table[position / block_size_];
        const int64_t offset = position % block_size_;
        const int64_t to = position - begin;
        const int64_t key_at = key_index(block, head) + offset / 8 * 8 * dim_;
        for (int d = 0; d < dim_; d++) {
            float eight[8];
            kernels.widen(type_, keys_.data() + (key_at + 8 * d) * item_bytes_, 8, eight);
            keys[to / 8 * 8 * dim_ + 8 * d + to % 8] = eight[offset % 8];
        }
        const int64_t value_at = value_index(block, head) + offset * padded_dim_;
        kernels.widen(type_, values_.data() + value_at * item_bytes_, padded_dim_,
                      values + to * padded_dim_);
    }
}

}  // namespace octavo
