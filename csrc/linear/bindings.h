// Bindings of the linear kernels for their tests; the executor calls the kernels from C++.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_linear(nanobind::module_& m);

}  // namespace octavo
