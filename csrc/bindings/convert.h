// What bindings share: names of types and instruction sets, array types, text of errors.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>

#include "attention/kernels.h"
#include "linear/isa.h"
#include "quant/decode.h"

namespace octavo {

namespace nb = nanobind;

template <typename Item, int axes>
using Array = nb::ndarray<const Item, nb::ndim<axes>, nb::c_contig, nb::device::cpu>;

inline WeightType weight_type_named(const std::string& name) {
    int i = 0;
    for (const char* known : weight_type_names) {
        if (name == known) return static_cast<WeightType>(i);
        i++;
    }
    throw std::invalid_argument("no kernels for weight type " + name);
}

inline KvType kv_type_named(const std::string& name) {
    if (name == "float32") return KvType::f32;
    if (name == "float16") return KvType::f16;
    if (name == "bfloat16") return KvType::bf16;
    throw std::invalid_argument("no kernels for a cache of " + name);
}

// "auto": the fastest that this CPU executes.
inline Isa isa_named(const std::string& name) {
    if (name == "auto") return best_isa();
    if (name == "scalar") return Isa::scalar;
    if (name == "avx2" && best_isa() == Isa::avx2) return Isa::avx2;
    throw std::invalid_argument("this CPU does not execute " + name);
}

}  // namespace octavo
