// The scalar form of the sampler's passes: the specification of the other.
#include <limits>

#include "math/exp.h"
#include "math/lanes.h"
#include "sampler/kernels.h"

namespace octavo {

namespace {

bool highest(const float* row, int64_t count, float* max) {
    float found = -std::numeric_limits<float>::infinity();
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        finite = finite && row[i] < std::numeric_limits<float>::infinity();
        found = row[i] > found ? row[i] : found;
    }
    *max = found;
    return finite;
}

int64_t next(const float* row, int64_t begin, int64_t count, float value) {
    for (int64_t i = begin; i < count; i++) {
        if (row[i] >= value) return i;
    }
    return count;
}

int64_t count_above(const float* row, int64_t count, float value) {
    int64_t above = 0;
    for (int64_t i = 0; i < count; i++) above += row[i] > value;
    return above;
}

double sum_exp(const float* row, int64_t count, float highest) {
    double lane[num_lanes] = {};
    for (int64_t i = 0; i < count; i++) {
        lane[i % num_lanes] += static_cast<double>(exp_f32(row[i] - highest));
    }
    return add_lanes(lane);
}

void weights(const float* row, int64_t count, double highest, double temperature, double* weights) {
    for (int64_t i = 0; i < count; i++) {
        weights[i] = exp_f64((static_cast<double>(row[i]) - highest) / temperature);
    }
}

void block_sums(const double* weights, int64_t count, double* sums) {
    for (int64_t begin = 0; begin < count; begin += sum_block) {
        const int64_t end = begin + sum_block < count ? begin + sum_block : count;
        double lane[num_lanes] = {};
        for (int64_t i = begin; i < end; i++) lane[i % num_lanes] += weights[i];
        sums[begin / sum_block] = add_lanes(lane);
    }
}

}  // namespace

extern const SamplerKernels sampler_scalar = {highest, next,    count_above,
                                              sum_exp, weights, block_sums};

const SamplerKernels& sampler_kernels(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return sampler_avx2;
#endif
    (void)isa;
    return sampler_scalar;
}

}  // namespace octavo
