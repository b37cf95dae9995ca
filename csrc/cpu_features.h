// What the CPU of this machine can execute, asked once at run time.
#pragma once

#include <string>
#include <vector>

namespace octavo {

// Names of the instruction sets that kernels may be written for and that this CPU has,
// weakest first; always starts with "scalar".
std::vector<std::string> cpu_features();

}  // namespace octavo
