/* The permutation of a plan, as planner/permutation.py has it.

   Covers: numbers to places and back. Does not cover: how its parameters are chosen. */

#include "emlio_native.h"

#define MOST_ROUNDS 24
#define AT_ONCE 256
#define MIX 0xD6E8FEB86659FD93ull

typedef struct {
    uint64_t n, rows, columns;
    int64_t rounds;
    uint64_t factors[MOST_ROUNDS], offsets[MOST_ROUNDS];
} emlio_permutation;

static uint64_t spread(uint64_t tweak) {
    uint64_t word = (tweak + 1) * 0x9E3779B97F4A7C15ull;
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ word >> 27) * 0x94D049BB133111EBull;
    return word ^ word >> 31;
}

/* Pass n words once through the network. There is room for AT_ONCE words and spreads; no spreads are zeros. */
typedef void (*pass_of)(const emlio_permutation *by, uint64_t *restrict words, const uint64_t *restrict spreads, int n,
                        int inverse);

static inline __attribute__((always_inline)) void any_pass(const emlio_permutation *by, uint64_t *restrict words,
                                                           const uint64_t *restrict spreads, int n, int inverse) {
    uint64_t halves[2][AT_ONCE];
    const uint64_t columns = by->columns;
    /* Both numbers are below 2^41, which a double holds, so the quotient is at most one too large. */
    const double inverted = 1.0 / (double)columns;
    for (int i = 0; i < n; i++) {
        uint64_t row = (uint64_t)((double)(int64_t)words[i] * inverted);
        int64_t rest = (int64_t)(words[i] - row * columns);
        row -= rest < 0;
        rest += rest < 0 ? (int64_t)columns : 0;
        int over = rest >= (int64_t)columns;
        row += (uint64_t)over;
        rest -= over ? (int64_t)columns : 0;
        halves[0][i] = row;
        halves[1][i] = (uint64_t)rest;
    }
    for (int64_t number = 0; number < by->rounds; number++) {
        const int64_t round = inverse ? by->rounds - 1 - number : number;
        const uint64_t factor = by->factors[round], offset = by->offsets[round];
        const uint64_t size = round % 2 ? columns : by->rows;
        uint64_t *restrict move = halves[round % 2];
        const uint64_t *restrict other = halves[1 - round % 2];
        for (int i = 0; i < n; i++) {
            uint64_t hashed = (other[i] + (spreads ? spreads[i] : 0)) * factor + offset;
            hashed ^= hashed >> 32;
            hashed *= MIX;
            hashed = (hashed >> 32) * size >> 32;
            int64_t value = inverse ? (int64_t)(move[i] - hashed) : (int64_t)(move[i] + hashed - size);
            move[i] = (uint64_t)(value + (value < 0 ? (int64_t)size : 0));
        }
    }
    for (int i = 0; i < n; i++) words[i] = halves[0][i] * columns + halves[1][i];
}

static void plain_pass(const emlio_permutation *by, uint64_t *restrict words, const uint64_t *restrict spreads, int n,
                       int inverse) {
    any_pass(by, words, spreads, n, inverse);
}

static pass_of chosen_pass = plain_pass;

#if defined(__x86_64__)
#include <immintrin.h>

/* AVX-512 multiplies words of 64 bits, so the compiler does it well by itself. */
__attribute__((target("avx512f,avx512dq,avx512vl"))) static void wide_pass(const emlio_permutation *by,
                                                                          uint64_t *restrict words,
                                                                          const uint64_t *restrict spreads, int n,
                                                                          int inverse) {
    any_pass(by, words, spreads, n, inverse);
}

#define LANES 4
#define TO_DOUBLE 0x4330000000000000ll /* 2^52: its last bits are the units */
#define IN_AVX2 __attribute__((target("avx2"))) static inline

IN_AVX2 __m256i all(uint64_t value) { return _mm256_set1_epi64x((int64_t)value); }
IN_AVX2 __m256i upper(__m256i words) { return _mm256_srli_epi64(words, 32); }
IN_AVX2 __m256i loaded(const uint64_t *words) { return _mm256_loadu_si256((const __m256i *)words); }
IN_AVX2 void store(uint64_t *words, __m256i values) { _mm256_storeu_si256((__m256i *)words, values); }

/* size where the value is negative, 0 elsewhere */
IN_AVX2 __m256i if_negative(__m256i value, __m256i size) {
    return _mm256_and_si256(_mm256_cmpgt_epi64(_mm256_setzero_si256(), value), size);
}

/* AVX2 multiplies 32 bits by 32 bits. Of a round's first product 64 bits are needed, of its second the upper half of
   these. Words beyond n, up to a multiple of LANES, are permuted too; they are not read. */
__attribute__((target("avx2"), always_inline)) static inline void short_pass_of(const emlio_permutation *by,
                                                                               uint64_t *restrict words,
                                                                               const uint64_t *restrict spreads, int n,
                                                                               int inverse) {
    uint64_t halves[2][AT_ONCE];
    const __m256i columns = all(by->columns), mix = all(MIX), mix_upper = upper(mix), unit = all((uint64_t)TO_DOUBLE);
    const __m256d inverted = _mm256_set1_pd(1.0 / (double)by->columns);
    for (int i = 0; i < n; i += LANES) {
        const __m256i word = loaded(words + i);
        const __m256d number = _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(word, unit)), _mm256_castsi256_pd(unit));
        /* A row is below 2^31. See any_pass. */
        __m256i row = _mm256_cvtepi32_epi64(_mm256_cvttpd_epi32(_mm256_mul_pd(number, inverted)));
        __m256i rest = _mm256_sub_epi64(word, _mm256_mul_epu32(row, columns));
        const __m256i under = _mm256_cmpgt_epi64(_mm256_setzero_si256(), rest);
        row = _mm256_add_epi64(row, under); /* all ones are -1 */
        rest = _mm256_add_epi64(rest, _mm256_and_si256(under, columns));
        const __m256i below = _mm256_cmpgt_epi64(columns, rest);
        row = _mm256_add_epi64(row, _mm256_add_epi64(below, all(1)));
        rest = _mm256_sub_epi64(rest, _mm256_andnot_si256(below, columns));
        store(halves[0] + i, row);
        store(halves[1] + i, rest);
    }
    for (int64_t number = 0; number < by->rounds; number++) {
        const int64_t round = inverse ? by->rounds - 1 - number : number;
        const __m256i factor = all(by->factors[round]), factor_upper = upper(factor), offset = all(by->offsets[round]);
        const __m256i size = round % 2 ? columns : all(by->rows);
        uint64_t *restrict move = halves[round % 2];
        const uint64_t *restrict other = halves[1 - round % 2];
        for (int i = 0; i < n; i += LANES) {
            __m256i word = loaded(other + i);
            if (spreads) word = _mm256_add_epi64(word, loaded(spreads + i));
            __m256i high = _mm256_mul_epu32(word, factor_upper);
            if (spreads) high = _mm256_add_epi64(high, _mm256_mul_epu32(upper(word), factor)); /* 0 otherwise */
            __m256i hashed = _mm256_add_epi64(_mm256_mul_epu32(word, factor), _mm256_slli_epi64(high, 32));
            hashed = _mm256_add_epi64(hashed, offset);
            hashed = _mm256_xor_si256(hashed, upper(hashed));
            high = _mm256_add_epi64(_mm256_mul_epu32(hashed, mix_upper), _mm256_mul_epu32(upper(hashed), mix));
            hashed = _mm256_add_epi64(upper(_mm256_mul_epu32(hashed, mix)), high);
            hashed = upper(_mm256_mul_epu32(hashed, size)); /* of `hashed` it takes the lower 32 bits */
            __m256i value = loaded(move + i);
            value = inverse ? _mm256_sub_epi64(value, hashed) : _mm256_sub_epi64(_mm256_add_epi64(value, hashed), size);
            store(move + i, _mm256_add_epi64(value, if_negative(value, size)));
        }
    }
    for (int i = 0; i < n; i += LANES)
        store(words + i, _mm256_add_epi64(_mm256_mul_epu32(loaded(halves[0] + i), columns), loaded(halves[1] + i)));
}

__attribute__((target("avx2"))) static void short_pass(const emlio_permutation *by, uint64_t *restrict words,
                                                       const uint64_t *restrict spreads, int n, int inverse) {
    if (spreads)
        short_pass_of(by, words, spreads, n, inverse);
    else if (inverse)
        short_pass_of(by, words, 0, n, 1);
    else
        short_pass_of(by, words, 0, n, 0);
}

__attribute__((constructor)) static void choose_pass(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        chosen_pass = wide_pass;
    else if (__builtin_cpu_supports("avx2"))
        chosen_pass = short_pass;
}
#endif

/* Write the number at each place, or with `inverse` the place of each number. `tweaks` may be null.

   Returns 1 if the permutation or a value is impossible; nothing that is written then means anything. */
EXPORTED int32_t emlio_permute(const emlio_permutation *by, const int64_t *values, const int64_t *tweaks, int64_t n,
                               int32_t inverse, int64_t *out) {
    if (by->n < 1 || by->n > 1ull << 40 || by->columns < 1 || by->rows < 1 || by->rows > 1ull << 21 ||
        by->columns > 1ull << 21 || by->rows * by->columns < by->n || by->rounds < 1 || by->rounds > MOST_ROUNDS)
        return 1;
    uint64_t words[AT_ONCE], spreads[AT_ONCE];
    memset(words, 0, sizeof words);
    memset(spreads, 0, sizeof spreads);
    for (int64_t first = 0; first < n; first += AT_ONCE) {
        int count = (int)(n - first < AT_ONCE ? n - first : AT_ONCE);
        for (int i = 0; i < count; i++) {
            words[i] = (uint64_t)values[first + i];
            if (words[i] >= by->n) return 1;
            if (tweaks) spreads[i] = spread((uint64_t)tweaks[first + i]);
        }
        chosen_pass(by, words, tweaks ? spreads : 0, count, inverse);
        for (int i = 0; i < count; i++) {
            /* Few lie outside, so they are walked on one by one. */
            while (words[i] >= by->n) plain_pass(by, &words[i], &spreads[i], 1, inverse);
            out[first + i] = (int64_t)words[i];
        }
    }
    return 0;
}
