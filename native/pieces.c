/* Joining ranges of files into the pieces that are read from a disk at once.

   Pure: which bytes are read, and where each range then lies in the memory they are read into. */

#include "emlio_native.h"

#include <stdlib.h>

#define IMPOSSIBLE (-1)
#define NO_MEMORY (-2)

typedef struct {
    int64_t file, start, end, number;
} span;

static int by_place(const void *left, const void *right) {
    const span *a = left, *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Join ranges, in any order, into pieces that begin and end at multiples of `align`, a power of two.

   Ranges of a file with at most `gap` bytes between them are read with these bytes. A stretch of more than `most` bytes is cut
   into pieces, which follow each other in memory. Bytes that two ranges share are read once.

   Of each piece: the file, the first byte, how many, how many are needed (the file may end behind these), its place in memory.
   `places` gets the place of each range; `memory_bytes` what all pieces take. There is room for `most_pieces`.

   Returns the number of pieces; IMPOSSIBLE for arguments that cannot be; NO_MEMORY. */
EXPORTED int64_t emlio_join_ranges(const int64_t *files, const int64_t *starts, const int64_t *sizes, int64_t n, int64_t align,
                                   int64_t gap, int64_t most, int64_t most_pieces, int64_t *piece_files, int64_t *piece_starts,
                                   int64_t *piece_sizes, int64_t *piece_needed, int64_t *piece_places, int64_t *places,
                                   int64_t *memory_bytes) {
    if (n < 0 || align < 1 || (align & (align - 1)) || gap < 0 || most < align || most % align) return IMPOSSIBLE;
    *memory_bytes = 0;
    span *spans = malloc((n ? (size_t)n : 1) * sizeof *spans);
    if (!spans) return NO_MEMORY;
    int64_t count = 0, pieces = 0, memory = 0;
    int sorted = 1;
    for (int64_t i = 0; i < n; i++) {
        if (starts[i] < 0 || sizes[i] < 0 || starts[i] > INT64_MAX / 2 || sizes[i] > INT64_MAX / 4) {
            free(spans);
            return IMPOSSIBLE;
        }
        places[i] = 0;
        if (!sizes[i]) continue;
        spans[count] = (span){files[i], starts[i], starts[i] + sizes[i], i};
        if (count && by_place(&spans[count - 1], &spans[count]) > 0) sorted = 0;
        count++;
    }
    if (!sorted) qsort(spans, (size_t)count, sizeof *spans, by_place);
    for (int64_t i = 0; i < count;) {
        const int64_t file = spans[i].file, begin = spans[i].start & -align;
        int64_t end = spans[i].end, next = i;
        do {
            places[spans[next].number] = memory + (spans[next].start - begin);
            if (spans[next].end > end) end = spans[next].end;
            next++;
        } while (next < count && spans[next].file == file && (spans[next].start & -align) <= ((end + align - 1) & -align) + gap);
        const int64_t upto = (end + align - 1) & -align;
        for (int64_t at = begin; at < upto; at += most) {
            const int64_t size = upto - at < most ? upto - at : most;
            if (pieces == most_pieces) {
                free(spans);
                return IMPOSSIBLE;
            }
            piece_files[pieces] = file;
            piece_starts[pieces] = at;
            piece_sizes[pieces] = size;
            piece_needed[pieces] = end - at < size ? end - at : size;
            piece_places[pieces] = memory + (at - begin);
            pieces++;
        }
        memory += upto - begin;
        i = next;
    }
    free(spans);
    *memory_bytes = memory;
    return pieces;
}

/* Copy `n` stretches of memory that do not overlap. */
EXPORTED void emlio_copy_each(const int64_t *from, const int64_t *to, const int64_t *sizes, int64_t n) {
    for (int64_t i = 0; i < n; i++) memcpy((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], (size_t)sizes[i]);
}
