// Which form of a kernel runs: chosen once at run time, given to every kernel call.
#pragma once

namespace octavo {

enum class Isa { scalar, avx2 };

// The fastest form that this CPU executes (avx2 asks for AVX2, FMA and F16C).
Isa best_isa();

}  // namespace octavo
