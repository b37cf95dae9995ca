// Addition and scaling of rows. One rounding an element: any instruction set the compiler picks is
// right.
#include "elementwise/elementwise.h"

namespace octavo {

void add(const float* a, const float* b, int64_t width, float* out) {
    for (int64_t i = 0; i < width; i++) out[i] = a[i] + b[i];
}

void scale(float* x, float factor, int64_t width) {
    for (int64_t i = 0; i < width; i++) x[i] *= factor;
}

}  // namespace octavo
