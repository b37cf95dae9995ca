// Finds how each token of a vocabulary is merged from two others.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_token_splits(nanobind::module_& m);

}  // namespace octavo
