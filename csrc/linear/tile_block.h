// Where a q type's block of one row lies in a tile of 8 rows. Block by block:
//
//     fp16 numbers    8 of each
//     then for each part of 32 columns
//     bytes           8 of each
//     codes           their low bits, then their high bits
//
// Bits of codes lie in groups of four columns, a 32-bit lane a row: 32 bytes for columns k..k+3 of
// rows 0..7. With b bits of a code a byte has room for 8/b columns, and column k is in group
// k/4 % b, there in byte k%4 of its row's lane, shifted left by b * (k/4 / b). So 4-bit codes lie
// as in a file's q4_0, columns k and k + 16 in a byte; 8-bit codes make 8 groups in ascending
// order.
//
// Beside the file's, whose 6-bit scales are bytes here, a tile takes 4/110 more for q3_K, 4/144 for
// q4_K, 4/176 for q5_K and 2/136 for iq4_xs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear/tile_kernel.h"
#include "quant/blocks.h"

namespace octavo {

constexpr int lane_halves = 2 * tile_rows;  // bytes of 8 fp16 numbers

// Static: translation units for different CPUs may not share one copy.
static constexpr int tile_part_bytes(const QFormat& format) {
    return tile_rows * format.part_bytes + 32 * (format.low_bits + format.high_bits);
}

static constexpr int tile_block_bytes(const QFormat& format) {
    return lane_halves * format.halves + format.width / block_cols * tile_part_bytes(format);
}

// Writes the block of row `lane`; the bytes of other rows stay.
void store_block(const QFormat& format, const QBlock& block, int lane, uint8_t* tile_block);

// Reads it back.
void load_block(const QFormat& format, const uint8_t* tile_block, int lane, QBlock* block);

// Reads one part.
void load_part(const QFormat& format, const uint8_t* tile_part, int lane, QPart* part);

}  // namespace octavo
