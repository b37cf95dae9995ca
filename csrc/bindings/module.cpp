// The Python module octavo._native: bindings only, no logic.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <iterator>
#include <string>
#include <vector>

#include "bindings/bind_executor.h"
#include "bindings/header_strings.h"
#include "bindings/token_splits.h"
#include "cpu_features.h"
#include "linear/bindings.h"
#include "quant/weight_type.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
    m.doc() = "Octavo's C++ side.";
    // A program that ends while a model is loaded leaves it to the system: no leak.
    nb::set_leak_warnings(false);
    m.def("cpu_features", &octavo::cpu_features,
          "Instruction sets this CPU has among those kernels are written for, weakest first.");
    m.def(
        "weight_types",
        [] {
            return std::vector<std::string>(std::begin(octavo::weight_type_names),
                                            std::end(octavo::weight_type_names));
        },
        "Names of the weight types that have kernels.");
    octavo::bind_executor(m);
    octavo::bind_header_strings(m);
    octavo::bind_linear(m);
    octavo::bind_token_splits(m);
}
