/* Records of a payload as the rows of one array.

   Covers: copying ranges to rows, with zeros behind shorter ones. Does not cover: which ranges, checking what they hold. */

#include "emlio_native.h"

#define ROWS_AHEAD 4 /* the copy of a small record is over before its next line has come from memory */

/* Copy each range to its row, and write its length to the same place of `lengths`, unless that is null. Returns 1 if a range does not lie in the payload or is longer than a row, or if there is
   no such row; what rows then hold means nothing. */
EXPORTED int32_t emlio_place_rows(const uint8_t *payload, uint64_t bytes, const int64_t *starts, const int64_t *ends,
                                  const int64_t *slots, int64_t n, uint8_t *out, int64_t height, uint64_t width,
                                  int64_t *lengths) {
    for (int64_t range = 0; range < n; range++) {
        int64_t start = starts[range], end = ends[range], slot = slots[range];
        if (start < 0 || end < start || (uint64_t)end > bytes || slot < 0 || slot >= height) return 1;
        uint64_t length = (uint64_t)(end - start);
        if (length > width) return 1;
        if (range + ROWS_AHEAD < n) {
            /* Not checked yet: a prefetch of any address is allowed. */
            uintptr_t next = (uintptr_t)payload + (uint64_t)starts[range + ROWS_AHEAD];
            __builtin_prefetch((const void *)next);
        }
        uint8_t *row = out + (uint64_t)slot * width;
        memcpy(row, payload + start, length);
        memset(row + length, 0, width - length);
        if (lengths) lengths[slot] = (int64_t)length;
    }
    return 0;
}
