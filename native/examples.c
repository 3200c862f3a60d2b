/* Finding features in serialised tf.train.Examples, and reading their numbers.

   Only the form that every serialiser writes is read: name before value, one list, numbers packed, nothing unknown. A record
   in any other form is odd, and the caller reads it with its own parser, which also says what is wrong with it.

   Covers: where the values of the wanted features lie, how many there are, numbers as columns. Does not cover: bytes, which
   stay where they are; error texts. */

#include "emlio_native.h"

#define ENTRY 0x0A
#define VALUE 0x12
#define LIST 0x0A
#define BYTES 0x0A
#define FLOATS 0x12
#define INTS 0x1A

#define REMEMBERED 64 /* entries of a record whose names are guessed from the record before */

typedef struct {
    const uint8_t *at, *end;
} span;

/* Read a length. Returns 0 if there is none: no length needs more than five bytes. */
static inline int read_length(span *in, uint64_t *length) {
    if (in->at < in->end && *in->at < 0x80) {
        *length = *in->at++;
        return 1;
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (in->at == in->end) return 0;
        uint8_t octet = *in->at++;
        value |= (uint64_t)(octet & 0x7F) << shift;
        if (octet < 0x80) {
            *length = value;
            return 1;
        }
    }
    return 0;
}

/* Read a tag and what it delimits; whatever follows stays in `in`. Returns 0 if that is not there. */
static inline int read_delimited(span *in, uint8_t tag, span *out) {
    uint64_t length;
    if (in->at == in->end || *in->at != tag) return 0;
    in->at++;
    if (!read_length(in, &length) || length > (uint64_t)(in->end - in->at)) return 0;
    out->at = in->at;
    in->at += length;
    out->end = in->at;
    return 1;
}

static inline int is_name(span name, const uint8_t *wanted, int64_t length) {
    return name.end - name.at == length && !memcmp(name.at, wanted, (size_t)length);
}

/* Find the list in a value: its kind, its content, the number of its values. Returns 0 if its form is another one. */
static inline int read_list(span value, uint8_t *kind, span *content, int64_t *count) {
    if (value.at == value.end) return 0;
    *kind = *value.at;
    if (*kind != BYTES && *kind != FLOATS && *kind != INTS) return 0;
    span list;
    if (!read_delimited(&value, *kind, &list) || value.at != value.end) return 0;
    if (list.at == list.end) {
        *content = list;
        *count = 0;
        return *kind != BYTES;
    }
    if (!read_delimited(&list, LIST, content) || list.at != list.end) return 0;
    int64_t bytes = content->end - content->at;
    if (*kind == BYTES) {
        *count = 1;
    } else if (*kind == FLOATS) {
        if (bytes % 4) return 0;
        *count = bytes / 4;
    } else {
        if (bytes && content->end[-1] >= 0x80) return 0;
        int64_t lasts = 0;
        for (const uint8_t *at = content->at; at < content->end; at++) lasts += *at < 0x80;
        *count = lasts;
    }
    return 1;
}

/* Find the wanted features of each record. The name `k` is names[name_ends[k - 1]:name_ends[k]]. For record r and name k,
   lows, highs and counts at [r * name_count + k] say where the value or the packed run lies and how many values it holds;
   kinds[k] is the tag of the feature's list in all records that are not odd, 0 if all are. With `closed`, a record with further features
   is odd. `found` is room for one kind of each name. Returns the number of odd records, or -1 if a record does not lie in
   the buffer. */
EXPORTED int64_t emlio_scan_examples(const uint8_t *buffer, uint64_t bytes, const int64_t *starts, const int64_t *ends,
                                     int64_t n, const uint8_t *names, const int64_t *name_ends, int64_t name_count,
                                     int32_t closed, uint8_t *kinds, uint8_t *found, int64_t *lows, int64_t *highs,
                                     int64_t *counts, uint8_t *odd) {
    int64_t guesses[REMEMBERED], odd_count = 0;
    for (int64_t entry = 0; entry < REMEMBERED; entry++) guesses[entry] = entry < name_count ? entry : -1;
    memset(kinds, 0, (size_t)name_count);
    for (int64_t record = 0; record < n; record++) {
        int64_t start = starts[record], end = ends[record];
        if (start < 0 || end < start || (uint64_t)end > bytes) return -1;
        span all = {buffer + start, buffer + end}, features;
        int64_t left = name_count;
        int regular = read_delimited(&all, ENTRY, &features) && all.at == all.end;
        memset(found, 0, (size_t)name_count);
        for (int64_t number = 0; regular && features.at < features.end; number++) {
            span entry, name, value;
            if (!read_delimited(&features, ENTRY, &entry) || !read_delimited(&entry, ENTRY, &name) ||
                name.end - name.at >= 0x80) {
                regular = 0;
                break;
            }
            int64_t guess = number < REMEMBERED ? guesses[number] : -1, which = -1;
            if (guess >= 0) {
                int64_t from = guess ? name_ends[guess - 1] : 0;
                if (is_name(name, names + from, name_ends[guess] - from)) which = guess;
            }
            for (int64_t other = 0, from = 0; which < 0 && other < name_count; from = name_ends[other++])
                if (is_name(name, names + from, name_ends[other] - from)) which = other;
            if (number < REMEMBERED) guesses[number] = which;
            if (which < 0) {
                if (closed) regular = 0;
                continue;
            }
            uint8_t kind;
            span content;
            int64_t place = record * name_count + which;
            if (found[which] || !read_delimited(&entry, VALUE, &value) || entry.at != entry.end ||
                !read_list(value, &kind, &content, &counts[place]) || (kinds[which] && kinds[which] != kind)) {
                regular = 0;
                break;
            }
            found[which] = kind;
            left--;
            lows[place] = content.at - buffer;
            highs[place] = content.end - buffer;
        }
        regular = regular && !left;
        if (regular) memcpy(kinds, found, (size_t)name_count);
        odd[record] = !regular;
        odd_count += !regular;
    }
    return odd_count;
}

/* Read a packed run of `count` numbers. Returns 0 if it holds a number of more than 64 bits, or another count of them. */
static inline int read_numbers(const uint8_t *at, const uint8_t *end, int64_t count, int64_t *out) {
    for (int64_t number = 0; number < count; number++) {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            if (at == end) return 0;
            uint8_t octet = *at++;
            value |= (uint64_t)(octet & 0x7F) << shift;
            if (shift == 63 && octet > 1) return 0;
            if (octet < 0x80) break;
        }
        out[number] = (int64_t)value;
    }
    return at == end;
}

/* Write the numbers of several features of those of n records that are not odd, as `emlio_scan_examples` found them. Those of
   name k go to the row `slots[record]` of the array outs[k] of (heights[k], widths[k]) values, or, if the width is -1, one
   record behind the other to an array of heights[k] values; a name with a width of -2 is left out. The values have 8 bytes for
   INTS and 4 for FLOATS. `written` is room for one number of each name. Returns 1 if a number is malformed, or if anything
   does not fit; what is in the arrays then means nothing. */
EXPORTED int32_t emlio_example_numbers(const uint8_t *buffer, uint64_t bytes, const int64_t *lows, const int64_t *highs,
                                       const int64_t *counts, const uint8_t *odd, const int64_t *slots, int64_t n,
                                       const uint8_t *kinds, int64_t name_count, const uint64_t *outs,
                                       const int64_t *heights, const int64_t *widths, int64_t *written) {
    memset(written, 0, (size_t)name_count * sizeof *written);
    for (int64_t record = 0; record < n; record++) {
        if (odd[record]) continue;
        int64_t slot = slots[record];
        for (int64_t name = 0; name < name_count; name++) {
            int64_t width = widths[name], height = heights[name], to;
            if (width == -2) continue;
            int64_t place = record * name_count + name;
            int64_t low = lows[place], high = highs[place], count = counts[place];
            if (low < 0 || high < low || (uint64_t)high > bytes || count < 0 || count > high - low) return 1;
            if (width >= 0) {
                if (count != width || slot < 0 || slot >= height) return 1;
                to = slot * width;
            } else {
                if (count > height - written[name]) return 1;
                to = written[name];
                written[name] += count;
            }
            uint8_t *out = (uint8_t *)(uintptr_t)outs[name];
            if (kinds[name] == FLOATS) {
                if (count * 4 != high - low) return 1;
                if (count == 1)
                    memcpy(out + to * 4, buffer + low, 4);
                else
                    memcpy(out + to * 4, buffer + low, (size_t)(count * 4));
            } else if (kinds[name] != INTS ||
                       !read_numbers(buffer + low, buffer + high, count, (int64_t *)(void *)out + to)) {
                return 1;
            }
        }
    }
    return 0;
}
