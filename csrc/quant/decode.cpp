// Decoding of raw weight rows; block layouts are GGML's (see octavo/weights/quants.py).
#include "quant/decode.h"

#include <cstring>

#include "quant/half.h"

namespace octavo {

namespace {

struct Encoding {
    int64_t width;  // columns of a block
    size_t bytes;   // of a block
};

Encoding encoding_of(WeightType type) {
    switch (type) {
        case WeightType::f32:
            return {1, 4};
        case WeightType::f16:
        case WeightType::bf16:
            return {1, 2};
        case WeightType::q4_0:
            return {32, 18};
        case WeightType::q4_1:
            return {32, 20};
        case WeightType::q8_0:
            return {32, 34};
    }
    return {1, 0};  // not reached: the enumeration is closed
}

void decode_q4_0(const uint8_t* block, float* out) {
    const float scale = float_from_f16(load_u16(block));
    for (int i = 0; i < 16; i++) {
        out[i] = static_cast<float>((block[2 + i] & 15) - 8) * scale;
        out[i + 16] = static_cast<float>((block[2 + i] >> 4) - 8) * scale;
    }
}

void decode_q4_1(const uint8_t* block, float* out) {
    const float scale = float_from_f16(load_u16(block));
    const float minimum = float_from_f16(load_u16(block + 2));
    for (int i = 0; i < 16; i++) {
        out[i] = static_cast<float>(block[4 + i] & 15) * scale + minimum;
        out[i + 16] = static_cast<float>(block[4 + i] >> 4) * scale + minimum;
    }
}

void decode_q8_0(const uint8_t* block, float* out) {
    const float scale = float_from_f16(load_u16(block));
    for (int i = 0; i < 32; i++)
        out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

}  // namespace

int64_t block_width(WeightType type) { return encoding_of(type).width; }

size_t row_bytes(WeightType type, int64_t cols) {
    const Encoding encoding = encoding_of(type);
    return static_cast<size_t>(cols / encoding.width) * encoding.bytes;
}

bool reads_q8(WeightType type) { return block_width(type) == 32; }

void decode_row(WeightType type, const uint8_t* raw_row, int64_t cols, float* out) {
    switch (type) {
        case WeightType::f32:
            std::memcpy(out, raw_row, static_cast<size_t>(cols) * 4);
            return;
        case WeightType::f16:
            for (int64_t k = 0; k < cols; k++) out[k] = float_from_f16(load_u16(raw_row + 2 * k));
            return;
        case WeightType::bf16:
            for (int64_t k = 0; k < cols; k++) out[k] = float_from_bf16(load_u16(raw_row + 2 * k));
            return;
        case WeightType::q4_0:
            for (int64_t b = 0; b < cols / 32; b++) decode_q4_0(raw_row + 18 * b, out + 32 * b);
            return;
        case WeightType::q4_1:
            for (int64_t b = 0; b < cols / 32; b++) decode_q4_1(raw_row + 20 * b, out + 32 * b);
            return;
        case WeightType::q8_0:
            for (int64_t b = 0; b < cols / 32; b++) decode_q8_0(raw_row + 34 * b, out + 32 * b);
            return;
    }
}

}  // namespace octavo
