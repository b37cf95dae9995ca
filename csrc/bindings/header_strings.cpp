// The strings of a GGUF header's array: vocabularies hold hundreds of thousands.
#include "bindings/header_strings.h"

#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstring>

namespace nb = nanobind;

namespace octavo {

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the lengths are read as they lie in memory: little-endian"
#endif
constexpr int64_t length_bytes = 8;

nb::object read_strings(Bytes data, int64_t position, int64_t end, int64_t count) {
    if (position < 0 || end < position || end > static_cast<int64_t>(data.size()) || count < 0 ||
        count > (end - position) / length_bytes) {
        return nb::none();
    }
    nb::list strings = nb::steal<nb::list>(PyList_New(count));
    if (!strings.is_valid()) throw nb::python_error();
    for (int64_t i = 0; i < count; i++) {
        if (end - position < length_bytes) return nb::none();
        uint64_t length;
        std::memcpy(&length, data.data() + position, sizeof length);
        position += length_bytes;
        if (length > static_cast<uint64_t>(end - position)) return nb::none();
        const char* text = reinterpret_cast<const char*>(data.data() + position);
        PyObject* string = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(length), "strict");
        if (!string) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) throw nb::python_error();
            PyErr_Clear();
            return nb::none();
        }
        PyList_SET_ITEM(strings.ptr(), i, string);
        position += static_cast<int64_t>(length);
    }
    return nb::make_tuple(strings, position);
}

}  // namespace

void bind_header_strings(nb::module_& m) {
    m.def("read_strings", &read_strings, nb::arg("data"), nb::arg("position"), nb::arg("end"),
          nb::arg("count"),
          "`count` strings, each behind its 64-bit length, from `position` to at most `end`:\n"
          "(strings, position behind them), or None if that is not what is there.");
}

}  // namespace octavo
