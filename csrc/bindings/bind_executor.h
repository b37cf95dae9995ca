// Bindings of the program builder and the executor.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_executor(nanobind::module_& m);

}  // namespace octavo
