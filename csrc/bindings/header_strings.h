// Reads the arrays of strings of GGUF headers.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_header_strings(nanobind::module_& m);

}  // namespace octavo
