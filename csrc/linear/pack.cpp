// Packing: the layouts of the tiles, to and from the file's rows.
//
// Floating-point types: column by column, the value of each of the 8 rows.
// Q types: block by block of 32 columns,
//     scales     8 x fp16
//     minimums   8 x fp16 (q4_1 only)
//     columns    four columns of each row at a time (a 32-bit lane a row): 32 bytes for columns
//                0..3 of rows 0..7, then 4..7 and so on. In the 4-bit types a byte holds column k
//                in its low and k + 16 in its high nibble, as in the file, which makes 4 such
//                groups of 32 bytes; in q8_0 it makes 8.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "linear/linear.h"

namespace octavo {

namespace {

constexpr size_t huge_page = size_t{2} << 20;

uint8_t* allocate(size_t size) {
    // Whole huge pages for large matrices: a sweep over weights otherwise waits for page walks.
    const size_t alignment = size >= 2 * huge_page ? huge_page : 64;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, size) != 0) throw std::bad_alloc();
#if defined(__linux__)
    // Only advice: without huge pages everything still works.
    if (alignment == huge_page) madvise(memory, size, MADV_HUGEPAGE);
#endif
    return static_cast<uint8_t*>(memory);
}

// Interleaves the first `count` rows of a tile of floating-point values.
template <int value_bytes>
void pack_values(const uint8_t* const* rows, int count, int64_t cols, uint8_t* tile) {
    for (int64_t k = 0; k < cols; k++, tile += value_bytes * tile_rows) {
        for (int lane = 0; lane < count; lane++) {
            std::memcpy(tile + value_bytes * lane, rows[lane] + value_bytes * k, value_bytes);
        }
    }
}

template <int value_bytes>
void unpack_values(const uint8_t* tile, int lane, int64_t count, uint8_t* raw) {
    for (int64_t k = 0; k < count; k++) {
        std::memcpy(raw + value_bytes * k, tile + value_bytes * (k * tile_rows + lane),
                    value_bytes);
    }
}

// Where the parts of a q block lie: in the file and in a tile.
struct BlockLayout {
    int halves;        // fp16 numbers before the columns: scale, minimum
    int column_bytes;  // of one row
};

BlockLayout layout_of(WeightType type) {
    if (type == WeightType::q4_0) return {1, 16};
    if (type == WeightType::q4_1) return {2, 16};
    return {1, 32};
}

// Copies row `lane` of a tile, from the file's bytes.
void pack_q_row(const BlockLayout& layout, const uint8_t* raw, int64_t blocks, int lane,
                uint8_t* tile) {
    for (int64_t b = 0; b < blocks; b++) {
        for (int i = 0; i < layout.halves; i++, raw += 2, tile += 2 * tile_rows) {
            std::memcpy(tile + 2 * lane, raw, 2);
        }
        for (int i = 0; i < layout.column_bytes; i += 4, raw += 4, tile += 4 * tile_rows) {
            std::memcpy(tile + 4 * lane, raw, 4);
        }
    }
}

void unpack_q_block(const BlockLayout& layout, const uint8_t* tile, int lane, uint8_t* raw) {
    for (int i = 0; i < layout.halves; i++, raw += 2, tile += 2 * tile_rows) {
        std::memcpy(raw, tile + 2 * lane, 2);
    }
    for (int i = 0; i < layout.column_bytes; i += 4, raw += 4, tile += 4 * tile_rows) {
        std::memcpy(raw, tile + 4 * lane, 4);
    }
}

}  // namespace

PackedLinear::PackedLinear(WeightType type, int64_t rows, int64_t cols)
    : type_(type),
      rows_(rows),
      cols_(cols),
      tile_bytes_(row_bytes(type, cols) * tile_rows),
      data_(allocate(tile_bytes_ * static_cast<size_t>(tiles()))) {}

PackedLinear::~PackedLinear() { std::free(data_); }

PackedLinear::PackedLinear(PackedLinear&& other) noexcept
    : type_(other.type_),
      rows_(other.rows_),
      cols_(other.cols_),
      tile_bytes_(other.tile_bytes_),
      data_(std::exchange(other.data_, nullptr)) {}

PackedLinear& PackedLinear::operator=(PackedLinear&& other) noexcept {
    type_ = other.type_;
    rows_ = other.rows_;
    cols_ = other.cols_;
    tile_bytes_ = other.tile_bytes_;
    std::swap(data_, other.data_);
    return *this;
}

void PackedLinear::pack_tiles(const uint8_t* raw, const int64_t* row_order, int64_t tile_begin,
                              int64_t tile_end) {
    const size_t bytes_per_row = row_bytes(type_, cols_);
    for (int64_t index = tile_begin; index < tile_end; index++) {
        const int64_t first = index * tile_rows;
        const int count = static_cast<int>(std::min<int64_t>(tile_rows, rows_ - first));
        const uint8_t* rows[tile_rows];
        for (int lane = 0; lane < count; lane++) {
            const int64_t stored = row_order ? row_order[first + lane] : first + lane;
            rows[lane] = raw + static_cast<size_t>(stored) * bytes_per_row;
        }
        uint8_t* const tile = data_ + static_cast<size_t>(index) * tile_bytes_;
        if (count < tile_rows) std::memset(tile, 0, tile_bytes_);
        if (type_ == WeightType::f32) {
            pack_values<4>(rows, count, cols_, tile);
        } else if (!reads_q8(type_)) {
            pack_values<2>(rows, count, cols_, tile);
        } else {
            for (int lane = 0; lane < count; lane++) {
                pack_q_row(layout_of(type_), rows[lane], cols_ / block_cols, lane, tile);
            }
        }
    }
}

void PackedLinear::decode_packed_row(int64_t row, float* out) const {
    const uint8_t* from = tile(row / tile_rows);
    const int lane = static_cast<int>(row % tile_rows);
    // Through the file's form, some columns at a time: decode_row defines the rounding.
    uint8_t raw[4 * block_cols];
    for (int64_t k = 0; k < cols_; k += block_cols) {
        const int64_t count = std::min<int64_t>(block_cols, cols_ - k);
        if (type_ == WeightType::f32) {
            unpack_values<4>(from, lane, count, raw);
        } else if (!reads_q8(type_)) {
            unpack_values<2>(from, lane, count, raw);
        } else {
            unpack_q_block(layout_of(type_), from, lane, raw);
        }
        from += row_bytes(type_, count) * tile_rows;
        decode_row(type_, raw, count, out + k);
    }
}

}  // namespace octavo
