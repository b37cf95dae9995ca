// Matrix multiplication with weights in their block encoding: pack at load, multiply in tiles.
//
//     out[token, row] = bias[row] + sum over k of w[row, k] * x[token, k]
//
// Every instruction set gives the same bits, and a token's bits depend on nothing but its own row:
// each output has one fp32 accumulator that starts at zero and takes the columns in ascending
// order; the bias is added last. (Of a NaN only its being one is promised, not sign or payload.)
// Floating-point types add column by column, acc = fma(w[k], x[k], acc). For q types each 32
// columns (a block of x, a part of w: quant/formats.h) add exact integer dot products, scaled. With
// d and m the fp16 numbers of w's block, s and u the scales and minimums of the part, all products
// of w alone being exact:
//
//     q4_0, q5_0, q8_0, iq4_nl  acc = fma(d * x.scale, dot, acc)
//     q4_1, q5_1                the same, then acc = fma(m, x.scaled_sum, acc)
//     iq4_xs                    acc = fma((d * s) * x.scale, dot, acc)
//     q4_K, q5_K                the same, then acc = fma(-(m * u), x.scaled_sum, acc)
//     mxfp4                     acc = fma(2^(exponent - 128) * x.scale, dot, acc)
//     q3_K, q6_K                acc = fma(d * x.scale, s0 * dot0 + s1 * dot1, acc)
//     q2_K                      the same, then, with the sums of x's integers,
//                               acc = fma(-m * x.scale, u0 * sum0 + u1 * sum1, acc)
//
// where 0 and 1 are the first and last 16 columns, whose dots and sums are scaled as integers.
// The two terms of a q8 input are summed apart, each as above, and the sums then added.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear/isa.h"
#include "linear/tile_kernel.h"
#include "quant/activations.h"
#include "quant/decode.h"

namespace octavo {

// The weights of one linear [rows, cols], repacked into tiles of 8 rows; the last tile is padded
// with zero rows. Takes the memory of the source, that padding and 1 to 4% of some K types apart.
// The layouts are described in pack.cpp and tile_block.h.
class PackedLinear {
  public:
    // Allocates; the tiles are garbage until packed. rows and cols are positive, cols a multiple of
    // block_width(type). Throws std::bad_alloc.
    PackedLinear(WeightType type, int64_t rows, int64_t cols);
    ~PackedLinear();
    PackedLinear(PackedLinear&& other) noexcept;
    PackedLinear& operator=(PackedLinear&& other) noexcept;
    PackedLinear(const PackedLinear&) = delete;
    PackedLinear& operator=(const PackedLinear&) = delete;

    // Packs the tiles [tile_begin, tile_end) from the file's bytes of the whole matrix (row-major).
    // row_order: for each row of this linear the stored row it is, or null if they are the same.
    // Safe on disjoint tile ranges from several threads; `raw` is not needed afterwards.
    void pack_tiles(const uint8_t* raw, const int64_t* row_order, int64_t tile_begin,
                    int64_t tile_end);

    // Decodes one row, as decode_row does from the file: a tied embedding needs no second copy.
    void decode_packed_row(int64_t row, float* out) const;

    WeightType type() const { return type_; }
    int64_t rows() const { return rows_; }
    int64_t cols() const { return cols_; }
    int64_t tiles() const { return (rows_ + tile_rows - 1) / tile_rows; }
    size_t tile_bytes() const { return tile_bytes_; }
    size_t size_bytes() const { return tile_bytes_ * static_cast<size_t>(tiles()); }
    const uint8_t* tile(int64_t index) const {
        return data_ + index * static_cast<int64_t>(tile_bytes_);
    }

  private:
    WeightType type_;
    int64_t rows_;
    int64_t cols_;
    size_t tile_bytes_;
    uint8_t* data_;
};

// Computes rows of the tiles [tile_begin, tile_end) for the tokens [token_begin, token_end):
// out[token * ld_out + row]. bias: [rows] or null. Neither allocates nor locks; several threads may
// call it at once on disjoint tiles (or tokens), in any partition: the bits do not change.
// Padding rows are not written. Splitting by tiles is the faster way; whole multiples of 4 tiles
// are best.
void linear_tiles(const PackedLinear& weights, const Activations& input, int64_t token_begin,
                  int64_t token_end, int64_t tile_begin, int64_t tile_end, float* out,
                  int64_t ld_out, const float* bias, Isa isa);

}  // namespace octavo
