// Packing: the file's rows to tiles and back. Floating-point types lie column by column, the value
// of each of the 8 rows; q types block by block, as tile_block.h describes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "linear/linear.h"
#include "linear/tile_block.h"

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

// The types whose blocks lie in a file as in a tile, apart from the other rows: nothing but fp16
// numbers and whole codes.
bool is_copied(const QFormat& format) { return format.part_bytes == 0 && format.high_bits == 0; }

void copy_q_row(const QFormat& format, const uint8_t* raw, int64_t cols, int lane, uint8_t* tile) {
    for (int64_t k = 0; k < cols; k += block_cols) {
        for (int i = 0; i < format.halves; i++, raw += 2, tile += lane_halves) {
            std::memcpy(tile + 2 * lane, raw, 2);
        }
        for (int i = 0; i < format.low_bits; i++, raw += 4, tile += 4 * tile_rows) {
            std::memcpy(tile + 4 * lane, raw, 4);
        }
    }
}

// Packs row `lane` of a tile from the file's bytes.
void pack_q_row(WeightType type, const uint8_t* raw, int64_t cols, int lane, uint8_t* tile) {
    const QFormat format = format_of(type);
    if (is_copied(format)) return copy_q_row(format, raw, cols, lane, tile);
    for (int64_t k = 0; k < cols; k += format.width) {
        QBlock block;
        take_apart(type, raw, &block);
        store_block(format, block, lane, tile);
        raw += format.file_bytes;
        tile += tile_block_bytes(format);
    }
}

void decode_q_row(WeightType type, const uint8_t* tile, int lane, int64_t cols, float* out) {
    const QFormat format = format_of(type);
    for (int64_t k = 0; k < cols; k += format.width, tile += tile_block_bytes(format)) {
        QBlock block;
        load_block(format, tile, lane, &block);
        decode_block(type, block, out + k);
    }
}

size_t bytes_of_tile(WeightType type, int64_t cols) {
    if (!reads_q8(type)) return row_bytes(type, cols) * tile_rows;
    const QFormat format = format_of(type);
    return static_cast<size_t>(cols / format.width) * static_cast<size_t>(tile_block_bytes(format));
}

}  // namespace

PackedLinear::PackedLinear(WeightType type, int64_t rows, int64_t cols)
    : type_(type),
      rows_(rows),
      cols_(cols),
      tile_bytes_(bytes_of_tile(type, cols)),
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
                pack_q_row(type_, rows[lane], cols_, lane, tile);
            }
        }
    }
}

void PackedLinear::decode_packed_row(int64_t row, float* out) const {
    const uint8_t* from = tile(row / tile_rows);
    const int lane = static_cast<int>(row % tile_rows);
    if (reads_q8(type_)) return decode_q_row(type_, from, lane, cols_, out);
    // Through the file's form, some columns at a time: decode_row defines the rounding.
    uint8_t raw[4 * block_cols];
    for (int64_t k = 0; k < cols_; k += block_cols) {
        const int64_t count = std::min<int64_t>(block_cols, cols_ - k);
        if (type_ == WeightType::f32) {
            unpack_values<4>(from, lane, count, raw);
        } else {
            unpack_values<2>(from, lane, count, raw);
        }
        from += row_bytes(type_, count) * tile_rows;
        decode_row(type_, raw, count, out + k);
    }
}

}  // namespace octavo
