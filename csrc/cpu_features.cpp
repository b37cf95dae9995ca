// Run-time CPU detection through the compiler's own table; no inline assembly.
#include "cpu_features.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace octavo {

std::vector<std::string> cpu_features() {
    std::vector<std::string> found = {"scalar"};
#if defined(__x86_64__)
    __builtin_cpu_init();
    // Every CPU with AVX2 has F16C, but a hypervisor may hide it.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c")) {
        found.push_back("avx2");
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
        found.push_back("avx512");
        if (__builtin_cpu_supports("avx512vnni")) found.push_back("avx512vnni");
    }
#elif defined(__aarch64__)
    found.push_back("neon");
#if defined(__linux__)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) found.push_back("dotprod");
#elif defined(__APPLE__)
    found.push_back("dotprod");
#endif
#endif
    return found;
}

}  // namespace octavo
