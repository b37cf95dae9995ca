// Decoding of raw weight rows: floats here, blocks in blocks.h.
#include "quant/decode.h"

#include <cstring>

#include "quant/blocks.h"
#include "quant/half.h"

namespace octavo {

namespace {

size_t value_bytes(WeightType type) { return type == WeightType::f32 ? 4 : 2; }

}  // namespace

bool reads_q8(WeightType type) { return type > WeightType::bf16; }

int64_t block_width(WeightType type) { return reads_q8(type) ? format_of(type).width : 1; }

size_t row_bytes(WeightType type, int64_t cols) {
    if (!reads_q8(type)) return static_cast<size_t>(cols) * value_bytes(type);
    const QFormat format = format_of(type);
    return static_cast<size_t>(cols / format.width) * static_cast<size_t>(format.file_bytes);
}

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
        default:
            break;
    }
    const QFormat format = format_of(type);
    for (int64_t k = 0; k < cols; k += format.width, raw_row += format.file_bytes) {
        QBlock block;
        take_apart(type, raw_row, &block);
        decode_block(type, block, out + k);
    }
}

}  // namespace octavo
