// Blocks into tiles and back, four columns of a row at a time.
#include "linear/tile_block.h"

#include <cstring>

#include "quant/half.h"

namespace octavo {

namespace {

constexpr int num_groups = block_cols / 4;

// The low `bits` bits of each of four bytes.
constexpr uint32_t mask_of(int bits) { return 0x01010101u * ((1u << bits) - 1u); }

template <int bits>
void store_groups(const uint32_t* groups, int from, int lane, uint8_t* to) {
    for (int i = 0; i < bits; i++) {
        uint32_t word = 0;
        for (int n = 0; n < 8 / bits; n++) {
            word |= (groups[i + bits * n] >> from & mask_of(bits)) << bits * n;
        }
        std::memcpy(to + 32 * i + 4 * lane, &word, 4);
    }
}

template <int bits>
void load_groups(const uint8_t* stored, int lane, int to, uint32_t* groups) {
    for (int i = 0; i < bits; i++) {
        uint32_t word;
        std::memcpy(&word, stored + 32 * i + 4 * lane, 4);
        for (int n = 0; n < 8 / bits; n++) {
            groups[i + bits * n] |= (word >> bits * n & mask_of(bits)) << to;
        }
    }
}

// groups: four codes each, of which `bits` bits from bit `from` on are stored.
void store_bits(const uint32_t* groups, int from, int bits, int lane, uint8_t* to) {
    if (bits == 1) store_groups<1>(groups, from, lane, to);
    if (bits == 2) store_groups<2>(groups, from, lane, to);
    if (bits == 4) store_groups<4>(groups, from, lane, to);
    if (bits == 8) store_groups<8>(groups, from, lane, to);
}

// Adds those bits to the groups.
void load_bits(const uint8_t* stored, int bits, int lane, int to, uint32_t* groups) {
    if (bits == 1) load_groups<1>(stored, lane, to, groups);
    if (bits == 2) load_groups<2>(stored, lane, to, groups);
    if (bits == 4) load_groups<4>(stored, lane, to, groups);
    if (bits == 8) load_groups<8>(stored, lane, to, groups);
}

void store_part(const QFormat& format, const QPart& part, int lane, uint8_t* to) {
    for (int i = 0; i < format.part_bytes; i++, to += tile_rows) to[lane] = part.bytes[i];
    uint32_t groups[num_groups];
    std::memcpy(groups, part.codes, sizeof groups);
    store_bits(groups, 0, format.low_bits, lane, to);
    store_bits(groups, format.low_bits, format.high_bits, lane, to + 32 * format.low_bits);
}

}  // namespace

void store_block(const QFormat& format, const QBlock& block, int lane, uint8_t* tile_block) {
    for (int i = 0; i < format.halves; i++, tile_block += lane_halves) {
        std::memcpy(tile_block + 2 * lane, block.halves + i, 2);
    }
    for (int p = 0; p < format.width / block_cols; p++, tile_block += tile_part_bytes(format)) {
        store_part(format, block.parts[p], lane, tile_block);
    }
}

void load_part(const QFormat& format, const uint8_t* tile_part, int lane, QPart* part) {
    for (int i = 0; i < format.part_bytes; i++, tile_part += tile_rows) {
        part->bytes[i] = tile_part[lane];
    }
    uint32_t groups[num_groups] = {};
    load_bits(tile_part, format.low_bits, lane, 0, groups);
    load_bits(tile_part + 32 * format.low_bits, format.high_bits, lane, format.low_bits, groups);
    std::memcpy(part->codes, groups, sizeof groups);
}

void load_block(const QFormat& format, const uint8_t* tile_block, int lane, QBlock* block) {
    for (int i = 0; i < format.halves; i++, tile_block += lane_halves) {
        block->halves[i] = load_u16(tile_block + 2 * lane);
    }
    for (int p = 0; p < format.width / block_cols; p++, tile_block += tile_part_bytes(format)) {
        load_part(format, tile_block, lane, block->parts + p);
    }
}

}  // namespace octavo
