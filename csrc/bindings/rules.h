// Reads RowSampling objects of Python into the sampler's rules.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "sampler/sampler.h"

namespace octavo {

// The rules point into the arrays of `rows` and `masks` (row index -> packed bits, or None), which
// must outlive them.
std::vector<RowRules> rules_of(nanobind::sequence rows, nanobind::object masks);

// (token ids [R] int32, [R] of None or (chosen, rank, top ids, top values)). ValueError: a row
// failed.
nanobind::tuple python_results(const std::vector<RowRules>& rules, std::vector<RowResult>& results);

}  // namespace octavo
