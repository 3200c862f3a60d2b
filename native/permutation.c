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

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define SEVERAL_WAYS __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define SEVERAL_WAYS
#endif

/* Pass words, at most AT_ONCE, once through the network. */
SEVERAL_WAYS static void pass(const emlio_permutation *by, uint64_t *restrict words, const uint64_t *restrict spreads, int n,
                              int inverse) {
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
            uint64_t hashed = (other[i] + spreads[i]) * factor + offset;
            hashed ^= hashed >> 32;
            hashed *= MIX;
            hashed = (hashed >> 32) * size >> 32;
            int64_t value = inverse ? (int64_t)(move[i] - hashed) : (int64_t)(move[i] + hashed - size);
            move[i] = (uint64_t)(value + (value < 0 ? (int64_t)size : 0));
        }
    }
    for (int i = 0; i < n; i++) words[i] = halves[0][i] * columns + halves[1][i];
}

/* Write the number at each place, or with `inverse` the place of each number. `tweaks` may be null.

   Returns 1 if the permutation or a value is impossible; nothing that is written then means anything. */
EXPORTED int32_t emlio_permute(const emlio_permutation *by, const int64_t *values, const int64_t *tweaks, int64_t n,
                               int32_t inverse, int64_t *out) {
    if (by->n < 1 || by->n > 1ull << 40 || by->columns < 1 || by->rows < 1 || by->rows > 1ull << 21 ||
        by->columns > 1ull << 21 || by->rows * by->columns < by->n || by->rounds < 1 || by->rounds > MOST_ROUNDS)
        return 1;
    uint64_t words[AT_ONCE], spreads[AT_ONCE];
    memset(spreads, 0, sizeof spreads);
    for (int64_t first = 0; first < n; first += AT_ONCE) {
        int count = (int)(n - first < AT_ONCE ? n - first : AT_ONCE);
        for (int i = 0; i < count; i++) {
            words[i] = (uint64_t)values[first + i];
            if (words[i] >= by->n) return 1;
            if (tweaks) spreads[i] = spread((uint64_t)tweaks[first + i]);
        }
        pass(by, words, spreads, count, inverse);
        for (int i = 0; i < count; i++) {
            /* Few lie outside, so they are walked on one by one. */
            while (words[i] >= by->n) pass(by, &words[i], &spreads[i], 1, inverse);
            out[first + i] = (int64_t)words[i];
        }
    }
    return 0;
}
