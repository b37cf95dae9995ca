// Blocks as they lie in files; the layouts are GGML's, described in octavo/weights/quants.py.
#include "quant/blocks.h"

#include <cstring>

#include "quant/half.h"

namespace octavo {

namespace {

// 16 bytes: the low nibbles are the first 16 codes, the high nibbles the others.
void take_nibbles(const uint8_t* bytes, uint8_t* codes) {
    for (int i = 0; i < 16; i++) {
        codes[i] = bytes[i] & 15;
        codes[i + 16] = bytes[i] >> 4;
    }
}

// Four bits of 32 bytes are 32 codes: how the K types keep their nibbles, two parts in 32 bytes.
void take_k_nibbles(const uint8_t* bytes, int shift, uint8_t* codes) {
    for (int i = 0; i < block_cols; i++) codes[i] = bytes[i] >> shift & 15;
}

// Adds bit `place` of each of 32 bytes to the codes, as their bit `to`.
void add_bits(const uint8_t* bytes, int place, int to, uint8_t* codes) {
    for (int i = 0; i < block_cols; i++) {
        codes[i] = static_cast<uint8_t>(codes[i] | (bytes[i] >> place & 1) << to);
    }
}

// Adds bit i of a 32-bit word to code i, as its bit 4. Eight codes at a time: the byte that holds
// their bits eight times, bit i of copy i kept, carried to the copy's top and from there to bit 4.
void add_fifth_bits(const uint8_t* word, uint8_t* codes) {
    for (int i = 0; i < 4; i++) {
        const uint64_t bits = 0x0101010101010101u * word[i] & 0x8040201008040201u;
        const uint64_t fifth = (bits + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
        uint64_t eight;
        std::memcpy(&eight, codes + 8 * i, 8);
        eight |= fifth;
        std::memcpy(codes + 8 * i, &eight, 8);
    }
}

// Four parts of two bits in 32 bytes.
void take_pairs(const uint8_t* bytes, int part, uint8_t* codes) {
    const uint8_t* from = bytes + part / 4 * 32;
    for (int i = 0; i < block_cols; i++) codes[i] = from[i] >> 2 * (part % 4) & 3;
}

// The 6-bit scale and minimum of each part of q4_K and q5_K: the first four in the low bits of 8
// bytes, whose upper two bits complete the nibbles of the last 4 bytes.
void take_k_scales(const uint8_t* bytes, QBlock* block) {
    for (int i = 0; i < 4; i++) {
        const int low = bytes[i], middle = bytes[4 + i], both = bytes[8 + i];
        block->parts[i].bytes[0] = low & 63;
        block->parts[i].bytes[1] = middle & 63;
        block->parts[4 + i].bytes[0] = static_cast<uint8_t>((both & 15) | low >> 6 << 4);
        block->parts[4 + i].bytes[1] = static_cast<uint8_t>(both >> 4 | middle >> 6 << 4);
    }
}

void take_q2_k(const uint8_t* bytes, QBlock* block) {
    block->halves[0] = load_u16(bytes + 80);
    block->halves[1] = load_u16(bytes + 82);
    for (int p = 0; p < 8; p++) {
        std::memcpy(block->parts[p].bytes, bytes + 2 * p, 2);
        take_pairs(bytes + 16, p, block->parts[p].codes);
    }
}

void take_q3_k(const uint8_t* bytes, QBlock* block) {
    block->halves[0] = load_u16(bytes + 108);
    const uint8_t* scales = bytes + 96;  // low nibbles of 16 scales, then their upper two bits
    for (int p = 0; p < 8; p++) {
        QPart& part = block->parts[p];
        for (int half = 0; half < 2; half++) {
            const int i = 2 * p + half;
            const int low = scales[i % 8] >> 4 * (i / 8) & 15;
            const int high = scales[8 + i % 4] >> 2 * (i / 4) & 3;
            part.bytes[half] = static_cast<uint8_t>((low | high << 4) - 32);
        }
        take_pairs(bytes + 32, p, part.codes);
        add_bits(bytes, p, 2, part.codes);
    }
}

void take_q4_k(const uint8_t* bytes, QBlock* block) {
    take_k_scales(bytes + 4, block);
    for (int p = 0; p < 8; p++) {
        take_k_nibbles(bytes + 16 + p / 2 * 32, p % 2 * 4, block->parts[p].codes);
    }
}

void take_q5_k(const uint8_t* bytes, QBlock* block) {
    take_k_scales(bytes + 4, block);
    for (int p = 0; p < 8; p++) {
        take_k_nibbles(bytes + 48 + p / 2 * 32, p % 2 * 4, block->parts[p].codes);
        add_bits(bytes + 16, p, 4, block->parts[p].codes);
    }
}

void take_q6_k(const uint8_t* bytes, QBlock* block) {
    block->halves[0] = load_u16(bytes + 208);
    for (int p = 0; p < 8; p++) {
        QPart& part = block->parts[p];
        std::memcpy(part.bytes, bytes + 192 + 2 * p, 2);
        // Of four parts the nibbles lie in 64 bytes, the upper bits in 32.
        take_k_nibbles(bytes + p / 4 * 64 + p % 2 * 32, p % 4 / 2 * 4, part.codes);
        const uint8_t* high = bytes + 128 + p / 4 * 32;
        add_bits(high, 2 * (p % 4), 4, part.codes);
        add_bits(high, 2 * (p % 4) + 1, 5, part.codes);
    }
}

void take_iq4_xs(const uint8_t* bytes, QBlock* block) {
    const int high = load_u16(bytes + 2);
    for (int p = 0; p < 8; p++) {
        const int low = bytes[4 + p / 2] >> p % 2 * 4 & 15;
        block->parts[p].bytes[0] = static_cast<uint8_t>((low | (high >> 2 * p & 3) << 4) - 32);
        take_nibbles(bytes + 8 + 16 * p, block->parts[p].codes);
    }
}

}  // namespace

void take_apart(WeightType type, const uint8_t* bytes, QBlock* block) {
    QPart& first = block->parts[0];
    block->halves[0] = load_u16(bytes);  // where most types have them; the others set them anew
    block->halves[1] = load_u16(bytes + 2);
    switch (type) {
        case WeightType::q4_0:
        case WeightType::iq4_nl:
            return take_nibbles(bytes + 2, first.codes);
        case WeightType::q4_1:
            return take_nibbles(bytes + 4, first.codes);
        case WeightType::q5_0:
            take_nibbles(bytes + 6, first.codes);
            return add_fifth_bits(bytes + 2, first.codes);
        case WeightType::q5_1:
            take_nibbles(bytes + 8, first.codes);
            return add_fifth_bits(bytes + 4, first.codes);
        case WeightType::q8_0:
            std::memcpy(first.codes, bytes + 2, block_cols);
            return;
        case WeightType::mxfp4:
            first.bytes[0] = bytes[0];
            return take_nibbles(bytes + 1, first.codes);
        case WeightType::q2_k:
            return take_q2_k(bytes, block);
        case WeightType::q3_k:
            return take_q3_k(bytes, block);
        case WeightType::q4_k:
            return take_q4_k(bytes, block);
        case WeightType::q5_k:
            return take_q5_k(bytes, block);
        case WeightType::q6_k:
            return take_q6_k(bytes, block);
        case WeightType::iq4_xs:
            return take_iq4_xs(bytes, block);
        case WeightType::f32:
        case WeightType::f16:
        case WeightType::bf16:
            return;  // not q types
    }
}

bool has_minimum(WeightType type) { return format_of(type).halves == 2; }

Scales scales_of(WeightType type, float d, float m, const uint8_t* part_bytes, int half) {
    const auto signed_byte = [&](int i) {
        return static_cast<float>(static_cast<int8_t>(part_bytes[i]));
    };
    switch (type) {
        case WeightType::q2_k:
            return {d * static_cast<float>(part_bytes[half] & 15),
                    -(m * static_cast<float>(part_bytes[half] >> 4))};
        case WeightType::q3_k:
        case WeightType::q6_k:
            return {d * signed_byte(half), 0.0f};
        case WeightType::q4_k:
        case WeightType::q5_k:
            return {d * static_cast<float>(part_bytes[0]),
                    -(m * static_cast<float>(part_bytes[1]))};
        case WeightType::iq4_xs:
            return {d * signed_byte(0), 0.0f};
        case WeightType::mxfp4:
            return {float_from_e8m0_halved(part_bytes[0]), 0.0f};
        default:
            return {d, m};
    }
}

void decode_block(WeightType type, const QBlock& block, float* out) {
    const QFormat format = format_of(type);
    const float d = float_from_f16(block.halves[0]);
    const float m = format.halves == 2 ? float_from_f16(block.halves[1]) : 0.0f;
    for (int k = 0; k < format.width; k += 16, out += 16) {
        const QPart& part = block.parts[k / block_cols];
        const int half = k % block_cols / 16;
        const Scales by = scales_of(type, d, m, part.bytes, half);
        for (int i = 0; i < 16; i++) {
            out[i] = by.scale * static_cast<float>(value_of(format, part.codes[16 * half + i]));
        }
        if (format.halves < 2) continue;
        for (int i = 0; i < 16; i++) out[i] += by.minimum;
    }
}

}  // namespace octavo
