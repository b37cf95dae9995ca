// The submodule octavo._native.linear: the kernels one by one, for tests. Sizes are checked here
// because the kernels trust theirs.
#include "linear/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/convert.h"
#include "linear/linear.h"

namespace octavo {

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Order = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void check(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// A NumPy array that owns its memory.
template <typename T>
nb::ndarray<nb::numpy, T> new_array(std::initializer_list<size_t> shape) {
    size_t size = 1;
    for (size_t extent : shape) size *= extent;
    T* data = new T[size]();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(data, shape, owner);
}

PackedLinear new_packed(const std::string& type, int64_t rows, int64_t cols) {
    const WeightType kind = weight_type_named(type);
    check(rows > 0 && cols > 0 && cols % block_width(kind) == 0, "rows must be whole blocks");
    return PackedLinear(kind, rows, cols);
}

void pack(PackedLinear& self, Bytes raw, std::optional<Order> order, int64_t begin, int64_t end) {
    const size_t bytes_per_row = row_bytes(self.type(), self.cols());
    check(0 <= begin && begin <= end && end <= self.tiles(), "tiles out of range");
    const int64_t stored = static_cast<int64_t>(raw.size() / bytes_per_row);
    const int64_t* rows = nullptr;
    if (order) {
        check(order->size() == static_cast<size_t>(self.rows()), "the order must name every row");
        rows = order->data();
        for (int64_t i = 0; i < self.rows(); i++) {
            check(0 <= rows[i] && rows[i] < stored, "row out of range");
        }
    } else {
        check(stored >= self.rows(), "too few bytes");
    }
    self.pack_tiles(raw.data(), rows, begin, end);
}

nb::ndarray<nb::numpy, float> decode_packed(const PackedLinear& self, int64_t row) {
    check(0 <= row && row < self.rows(), "row out of range");
    auto out = new_array<float>({static_cast<size_t>(self.cols())});
    self.decode_packed_row(row, out.data());
    return out;
}

nb::ndarray<nb::numpy, float> decode_raw(const std::string& type, Bytes raw, int64_t cols) {
    const WeightType kind = weight_type_named(type);
    check(cols > 0 && cols % block_width(kind) == 0, "cols must be whole blocks");
    check(raw.size() == row_bytes(kind, cols), "not the bytes of one row");
    auto out = new_array<float>({static_cast<size_t>(cols)});
    decode_row(kind, raw.data(), cols, out.data());
    return out;
}

std::vector<Q8Block> quantised(Matrix x, int terms, Isa isa) {
    check(terms == 1 || terms == 2, "terms must be 1 or 2");
    const int64_t tokens = static_cast<int64_t>(x.shape(0));
    const int64_t cols = static_cast<int64_t>(x.shape(1));
    std::vector<Q8Block> blocks(static_cast<size_t>(tokens * terms * q8_stride(cols)));
    // In two parts, as threads would.
    quantise_q8(x.data(), cols, cols, terms, 0, tokens / 2, blocks.data(), isa);
    quantise_q8(x.data(), cols, cols, terms, tokens / 2, tokens, blocks.data(), isa);
    return blocks;
}

nb::tuple quantise(Matrix x, const std::string& isa, int terms) {
    const size_t rows = x.shape(0) * static_cast<size_t>(terms);
    const size_t count = x.shape(1) / block_cols;
    check(x.shape(1) % block_cols == 0, "cols must be a multiple of 32");
    const std::vector<Q8Block> blocks = quantised(x, terms, isa_named(isa));
    auto q = new_array<int8_t>({rows, count, size_t{block_cols}});
    auto scale = new_array<float>({rows, count});
    auto scaled_sum = new_array<float>({rows, count});
    auto offset = new_array<int16_t>({rows, count, 2});
    auto half_sums = new_array<int16_t>({rows, count, 2});
    const size_t stride = static_cast<size_t>(q8_stride(static_cast<int64_t>(x.shape(1))));
    for (size_t row = 0; row < rows; row++) {
        for (size_t b = 0; b < count; b++) {
            const Q8Block& block = blocks[row * stride + b];
            const size_t to = row * count + b;
            std::copy(block.q, block.q + block_cols, q.data() + to * block_cols);
            scale.data()[to] = block.scale;
            scaled_sum.data()[to] = block.scaled_sum;
            std::copy(block.offset, block.offset + 2, offset.data() + to * 2);
            std::copy(block.half_sums, block.half_sums + 2, half_sums.data() + to * 2);
        }
    }
    return nb::make_tuple(q, scale, scaled_sum, offset, half_sums);
}

void multiply(const PackedLinear& weights, Matrix x, Output out, const std::string& isa,
              std::optional<Vector> bias, std::tuple<int64_t, int64_t> tokens,
              std::tuple<int64_t, int64_t> tiles, int terms) {
    const auto [token_begin, token_end] = tokens;
    const auto [tile_begin, tile_end] = tiles;
    check(x.shape(1) == static_cast<size_t>(weights.cols()), "x must have the columns of w");
    check(out.shape(0) == x.shape(0) && out.shape(1) >= static_cast<size_t>(weights.rows()),
          "out must be [tokens, at least rows]");
    check(!bias || bias->size() == static_cast<size_t>(weights.rows()), "bias must be [rows]");
    check(0 <= token_begin && token_begin <= token_end &&
              token_end <= static_cast<int64_t>(x.shape(0)),
          "tokens out of range");
    check(0 <= tile_begin && tile_begin <= tile_end && tile_end <= weights.tiles(),
          "tiles out of range");
    const Isa form = isa_named(isa);
    std::vector<Q8Block> blocks;
    Activations input;
    if (reads_q8(weights.type())) {
        blocks = quantised(x, terms, form);
        input.q8 = blocks.data();
        input.terms = terms;
    } else {
        input.x = x.data();
        input.ld_x = weights.cols();
    }
    linear_tiles(weights, input, token_begin, token_end, tile_begin, tile_end, out.data(),
                 static_cast<int64_t>(out.shape(1)), bias ? bias->data() : nullptr, form);
}

}  // namespace

void bind_linear(nb::module_& parent) {
    nb::module_ m = parent.def_submodule("linear", "Linear kernels one by one, for their tests.");
    nb::class_<PackedLinear>(m, "PackedLinear")
        .def(nb::new_(&new_packed), nb::arg("type"), nb::arg("rows"), nb::arg("cols"))
        .def("pack", &pack, nb::arg("raw"), nb::arg("order").none(), nb::arg("tile_begin"),
             nb::arg("tile_end"))
        .def("decode_row", &decode_packed, nb::arg("row"))
        .def_prop_ro("tiles", &PackedLinear::tiles)
        .def_prop_ro("size_bytes", &PackedLinear::size_bytes);
    m.def("decode_row", &decode_raw, nb::arg("type"), nb::arg("raw"), nb::arg("cols"));
    m.def(
        "quantise", &quantise, nb::arg("x"), nb::arg("isa"), nb::arg("terms") = 1,
        "-> q [T * terms, blocks, 32], scale, scaled_sum [.., blocks], offset, half_sums [.., 2]");
    m.def("multiply", &multiply, nb::arg("weights"), nb::arg("x"), nb::arg("out"), nb::arg("isa"),
          nb::arg("bias").none(), nb::arg("tokens"), nb::arg("tiles"), nb::arg("terms") = 1);
}

}  // namespace octavo
