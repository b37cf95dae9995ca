// F32, F16 and BF16 weights with AVX2: a lane a row, one column at a time, the token's value
// broadcast. Several sums are in flight because each waits for its own last multiply-add: two tiles
// by up to 6 tokens, or four tiles of one token.
#include "linear/tile_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo {

namespace {

enum class Value { f32, f16, bf16 };

template <Value value>
inline __m256 load_rows(const uint8_t* bytes) {
    if (value == Value::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(bytes));
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    if (value == Value::f16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

template <Value value, int tiles, int tokens>
void tile_float(const TileInput& in, float* out) {
    constexpr int step = value == Value::f32 ? 32 : 16;  // bytes of a column of 8 rows
    constexpr int line_columns = 64 / step;
    __m256 acc[tiles][tokens];
    for (int i = 0; i < tiles; i++) {
        for (int t = 0; t < tokens; t++) acc[i][t] = _mm256_setzero_ps();
    }
    const uint8_t* tile = in.tile;
    const float* x = in.x;
    const int64_t tile_bytes = static_cast<int64_t>(in.tile_bytes);
    const auto add_column = [&] {
        __m256 w[tiles];
        for (int i = 0; i < tiles; i++) w[i] = load_rows<value>(tile + i * tile_bytes);
        for (int t = 0; t < tokens; t++) {
            const __m256 column = _mm256_set1_ps(x[t * in.ld_x]);
            for (int i = 0; i < tiles; i++) acc[i][t] = _mm256_fmadd_ps(w[i], column, acc[i][t]);
        }
        tile += step;
        x++;
    };

    // A cache line of weights at a time, with a request for the one that is some lines ahead: the
    // CPU's own prefetching stops at each page. With one token it does better alone.
    int64_t k = 0;
    for (; k + line_columns <= in.cols; k += line_columns) {
        for (int i = 0; i < tiles && tokens > 1; i++) {
            const uint8_t* ahead = tile + i * tile_bytes + prefetch_bytes;
            _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T0);
        }
        for (int j = 0; j < line_columns; j++) add_column();
    }
    for (; k < in.cols; k++) add_column();

    for (int i = 0; i < tiles; i++) {
        for (int t = 0; t < tokens; t++) _mm256_storeu_ps(out + 8 * (i * tokens + t), acc[i][t]);
    }
}

template <Value value, int tiles>
void for_tokens(const TileInput& in, int tokens, float* acc) {
    switch (tokens) {
        case 1:
            return tile_float<value, tiles, 1>(in, acc);
        case 2:
            return tile_float<value, tiles, 2>(in, acc);
        case 3:
            return tile_float<value, tiles, 3>(in, acc);
        case 4:
            return tile_float<value, tiles, 4>(in, acc);
        case 5:
            return tile_float<value, tiles, 5>(in, acc);
        case 6:
            return tile_float<value, tiles, 6>(in, acc);
    }
}

template <Value value>
void for_shape(const TileInput& in, int tiles, int tokens, float* acc) {
    if (tiles == 1) return for_tokens<value, 1>(in, tokens, acc);
    if (tiles == 2) return for_tokens<value, 2>(in, tokens, acc);
    if (tiles == 3) return tile_float<value, 3, 1>(in, acc);
    tile_float<value, 4, 1>(in, acc);
}

}  // namespace

void tile_f32_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    for_shape<Value::f32>(in, tiles, tokens, acc);
}

void tile_f16_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    for_shape<Value::f16>(in, tiles, tokens, acc);
}

void tile_bf16_avx2(const TileInput& in, int tiles, int tokens, float* acc) {
    for_shape<Value::bf16>(in, tiles, tokens, acc);
}

}  // namespace octavo
#endif
