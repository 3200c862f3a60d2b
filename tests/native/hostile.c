/* Hostile input for the C library, under sanitizers.

   Each input chooses one function by its first byte, then how many records there are and where they lie, often where they
   cannot; the rest is the payload. All arrays have their exact size, so that a sanitizer sees each byte beside them. What a
   function accepts must lie inside what it was given.

   Built by scripts/fuzz-native: with libFuzzer where clang has it, otherwise with the loop at the end.

   Covers: check, checksums, rows, Examples and their numbers, gather, pieces of ranges, a queue of transfers, opening files by
   names, requests to a mounted tree. Does not cover: permutations and places, whose input
   comes from no other machine. */

#define _GNU_SOURCE

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int32_t emlio_check_frames(const uint8_t *, uint64_t, const int64_t *, int64_t, int32_t, int64_t *, int64_t *);
int32_t emlio_crc32c_each(const uint8_t *, uint64_t, const int64_t *, const int64_t *, int64_t, uint32_t *);
uint32_t emlio_crc32c(const uint8_t *, uint64_t, uint32_t);
int32_t emlio_place_rows(const uint8_t *, uint64_t, const int64_t *, const int64_t *, const int64_t *, int64_t, uint8_t *,
                         int64_t, uint64_t, int64_t *);
int64_t emlio_scan_examples(const uint8_t *, uint64_t, const int64_t *, const int64_t *, int64_t, const uint8_t *,
                            const int64_t *, int64_t, int32_t, uint8_t *, uint8_t *, int64_t *, int64_t *, int64_t *,
                            uint8_t *);
int32_t emlio_example_numbers(const uint8_t *, uint64_t, const int64_t *, const int64_t *, const int64_t *, const uint8_t *,
                              const int64_t *, int64_t, const uint8_t *, int64_t, const uint64_t *, const int64_t *,
                              const int64_t *, int64_t *);
int32_t emlio_guard_install(void);
int64_t emlio_gather(const int64_t *, const int64_t *, const int64_t *, const int64_t *, const int64_t *, int64_t, uint8_t *,
                     uint64_t);

int64_t emlio_join_ranges(const int64_t *, const int64_t *, const int64_t *, int64_t, int64_t, int64_t, int64_t, int64_t,
                          int64_t *, int64_t *, int64_t *, int64_t *, int64_t *, int64_t *, int64_t *);
void emlio_open_files(const void *, int32_t, int32_t, int32_t, int32_t, const int64_t *, int64_t, int64_t *);
int64_t emlio_read_indexed(const void *, int32_t, int32_t, int32_t, const int64_t *, const int64_t *, const int64_t *, int64_t,
                         uint8_t *, int64_t);
int64_t emlio_read_files(const int64_t *, const int64_t *, const int64_t *, const int64_t *, int64_t, uint8_t *, uint64_t);
uint32_t emlio_crc32c_joined(const uint32_t *, const int64_t *, int64_t);
void emlio_look_at_files(const void *, int32_t, const int64_t *, int64_t, uint8_t *);
void *emlio_disk_open(int32_t, int32_t, int32_t, int32_t *);
void *emlio_disk_begin(void *, int64_t, const int64_t *, const int64_t *, const int64_t *, const int64_t *, const int64_t *,
                       int32_t);
int32_t emlio_disk_finish(void *, void *, const uint8_t *, const int64_t *, const int64_t *, int64_t, uint8_t *, int64_t *);
int32_t emlio_disk_drop(void *, void *);
void emlio_disk_push(void *);
void emlio_disk_stop(void *);
void emlio_disk_close(void *);
void emlio_disk_free(void *);

void *emlio_fuse_open(const void *, int32_t, uint32_t, uint32_t, int64_t, int32_t *);
int64_t emlio_fuse_wait(void *, int64_t *, int64_t, int64_t);
void emlio_fuse_answer(void *, int64_t, const int64_t *, const int64_t *, const uint8_t *const *, const int64_t *,
                       const int32_t *, int32_t *);
void emlio_fuse_push(void *, int64_t, const void *);
void emlio_fuse_drop(void *, int64_t, const int64_t *, const int64_t *, const uint8_t *, int64_t);
void emlio_find_paths(const void *, const uint8_t *, const int64_t *, int64_t, int64_t *);
void emlio_fuse_stop(void *);
void emlio_fuse_free(void *);
void handle(void *, const uint8_t *, size_t);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_RECORDS 24
#define MUST(condition)                                                                                                    \
    do {                                                                                                                   \
        if (!(condition)) {                                                                                                \
            fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #condition);                                     \
            abort();                                                                                                       \
        }                                                                                                                  \
    } while (0)

typedef struct {
    const uint8_t *at;
    size_t left;
} input;

static uint8_t octet(input *in) {
    if (!in->left) return 0;
    in->left--;
    return *in->at++;
}

static int64_t word(input *in) {
    uint64_t value = 0;
    for (int place = 0; place < 8; place++) value = value << 8 | octet(in);
    return (int64_t)value;
}

/* A number near `usual`, or any at all. */
static int64_t near(input *in, int64_t usual) {
    uint8_t choice = octet(in);
    if (choice < 200) return usual;
    if (choice < 250) return (int64_t)((uint64_t)usual + (uint64_t)(int64_t)(int8_t)octet(in));
    return word(in);
}

static void *room(size_t bytes) {
    void *made = malloc(bytes); /* of its exact size, also if that is 0 */
    MUST(made);
    return made;
}

#define NUMBERS(count) room((size_t)(count) * sizeof(int64_t))

/* Where records lie: one behind the other in equal parts, if nothing else is drawn. */
typedef struct {
    int64_t n;
    int64_t *starts, *ends, *slots, *sizes;
    uint8_t *payload;
    uint64_t bytes;
} layout;

static layout drawn(input *in) {
    layout made = {.n = octet(in) % (MOST_RECORDS + 1)};
    made.starts = NUMBERS(made.n);
    made.ends = NUMBERS(made.n);
    made.slots = NUMBERS(made.n);
    made.sizes = NUMBERS(made.n);
    int hostile = octet(in) & 1;
    input later = *in;
    if (hostile) /* what is drawn for the numbers is not part of the payload */
        for (int64_t skipped = 0; skipped < made.n * 8; skipped++) octet(in);
    made.bytes = in->left;
    made.payload = room(made.bytes);
    if (made.bytes) memcpy(made.payload, in->at, made.bytes);
    later.left -= in->left;
    int64_t at = 0, each = made.n ? (int64_t)made.bytes / made.n : 0;
    for (int64_t record = 0; record < made.n; record++) {
        int64_t end = record == made.n - 1 ? (int64_t)made.bytes : at + each;
        made.starts[record] = hostile ? near(&later, at) : at;
        made.ends[record] = hostile ? near(&later, end) : end;
        made.sizes[record] = hostile ? near(&later, end - at) : end - at;
        made.slots[record] = hostile ? near(&later, record) : made.n - 1 - record;
        at = end;
    }
    return made;
}

static void let_go(layout made) {
    free(made.starts);
    free(made.ends);
    free(made.slots);
    free(made.sizes);
    free(made.payload);
}

static void check(input *in) {
    int32_t verify = octet(in) & 1;
    layout made = drawn(in);
    int64_t *starts = NUMBERS(made.n), *ends = NUMBERS(made.n);
    if (!emlio_check_frames(made.payload, made.bytes, made.sizes, made.n, verify, starts, ends))
        for (int64_t record = 0; record < made.n; record++)
            MUST(starts[record] >= 0 && starts[record] <= ends[record] && (uint64_t)ends[record] <= made.bytes);
    uint32_t *crcs = room((size_t)made.n * sizeof *crcs);
    if (!emlio_crc32c_each(made.payload, made.bytes, made.starts, made.ends, made.n, crcs))
        for (int64_t record = 0; record < made.n; record++)
            MUST(crcs[record] == emlio_crc32c(made.payload + made.starts[record],
                                              (uint64_t)(made.ends[record] - made.starts[record]), 0));
    free(crcs);
    free(starts);
    free(ends);
    let_go(made);
}

static void rows(input *in) {
    int64_t height = octet(in) % 32;
    uint64_t width = octet(in);
    layout made = drawn(in);
    uint8_t *out = room((size_t)height * width);
    int64_t *lengths = NUMBERS(height);
    if (!emlio_place_rows(made.payload, made.bytes, made.starts, made.ends, made.slots, made.n, out, height, width, lengths))
        for (int64_t record = 0; record < made.n; record++) {
            MUST(made.slots[record] >= 0 && made.slots[record] < height);
            MUST((uint64_t)(made.ends[record] - made.starts[record]) <= width);
        }
    free(out);
    free(lengths);
    let_go(made);
}

static void examples(input *in) {
    static const char *const known[] = {"a", "b", "image", "label", "", "x"};
    int64_t name_count = 1 + octet(in) % 6;
    uint8_t flags = octet(in);
    uint8_t joined[32], *names;
    int64_t *name_ends = NUMBERS(name_count), end = 0;
    for (int64_t name = 0; name < name_count; name++) {
        size_t length = strlen(known[name]);
        memcpy(joined + end, known[name], length);
        name_ends[name] = end += (int64_t)length;
    }
    names = room((size_t)end);
    memcpy(names, joined, (size_t)end);
    layout made = drawn(in);
    uint8_t *kinds = room((size_t)name_count), *found = room((size_t)name_count), *odd = room((size_t)made.n);
    int64_t *lows = NUMBERS(made.n * name_count), *highs = NUMBERS(made.n * name_count);
    int64_t *counts = NUMBERS(made.n * name_count);
    int64_t odd_count = emlio_scan_examples(made.payload, made.bytes, made.starts, made.ends, made.n, names, name_ends,
                                            name_count, flags & 1, kinds, found, lows, highs, counts, odd);
    if (odd_count >= 0) {
        uint64_t *outs = NUMBERS(name_count);
        int64_t *heights = NUMBERS(name_count), *widths = NUMBERS(name_count), *written = NUMBERS(name_count);
        void *arrays[6];
        for (int64_t name = 0; name < name_count; name++) {
            int64_t total = 0, width = -2, same = 1;
            for (int64_t record = 0; record < made.n; record++) {
                int64_t place = record * name_count + name;
                if (odd[record]) continue;
                MUST(kinds[name] == 0x0A || kinds[name] == 0x12 || kinds[name] == 0x1A);
                MUST(lows[place] >= made.starts[record] && lows[place] <= highs[place]);
                MUST(highs[place] <= made.ends[record]);
                MUST(counts[place] >= 0 && counts[place] <= (kinds[name] == 0x0A ? 1 : highs[place] - lows[place]));
                total += counts[place];
                if (width == -2) width = counts[place];
                same = same && width == counts[place];
            }
            size_t each = kinds[name] == 0x12 ? 4 : 8;
            if (kinds[name] == 0x0A || !kinds[name])
                widths[name] = -2, heights[name] = 0, arrays[name] = room(0);
            else if (same && !(flags & 2))
                widths[name] = width, heights[name] = made.n, arrays[name] = room((size_t)(made.n * width) * each);
            else
                widths[name] = -1, heights[name] = total, arrays[name] = room((size_t)total * each);
            outs[name] = (uint64_t)(uintptr_t)arrays[name];
        }
        if (flags & 4 && made.n) counts[octet(in) % (made.n * name_count)] = word(in);
        emlio_example_numbers(made.payload, made.bytes, lows, highs, counts, odd, made.slots, made.n, kinds, name_count, outs,
                              heights, widths, written);
        for (int64_t name = 0; name < name_count; name++) free(arrays[name]);
        free(outs);
        free(heights);
        free(widths);
        free(written);
    }
    free(name_ends);
    free(names);
    free(kinds);
    free(found);
    free(odd);
    free(lows);
    free(highs);
    free(counts);
    let_go(made);
}

static void gather(input *in) {
    uint64_t out_bytes = octet(in);
    layout made = drawn(in);
    int64_t *mappings = NUMBERS(made.n), *lengths = NUMBERS(made.n);
    for (int64_t run = 0; run < made.n; run++) {
        mappings[run] = (int64_t)(uintptr_t)made.payload;
        lengths[run] = (int64_t)made.bytes;
    }
    uint8_t *out = room(out_bytes);
    emlio_guard_install();
    int64_t copied = emlio_gather(mappings, lengths, made.starts, made.sizes, made.slots, made.n, out, out_bytes);
    MUST(copied <= made.n);
    for (int64_t run = 0; run < copied; run++) {
        MUST(made.slots[run] >= 0 && made.sizes[run] >= 0);
        MUST((uint64_t)made.slots[run] + (uint64_t)made.sizes[run] <= out_bytes);
    }
    free(mappings);
    free(lengths);
    free(out);
    let_go(made);
}

static void join(input *in) {
    layout made = drawn(in);
    const int64_t align = 1 << octet(in) % 5, most = align * (1 + octet(in) % 9), gap = octet(in), room_for = octet(in);
    int64_t *pieces[5], *places = NUMBERS(made.n), memory = 0;
    for (int column = 0; column < 5; column++) pieces[column] = NUMBERS(room_for);
    for (int64_t i = 0; i < made.n; i++) made.slots[i] &= 3;
    const int64_t count = emlio_join_ranges(made.slots, made.starts, made.sizes, made.n, align, gap, most, room_for, pieces[0],
                                            pieces[1], pieces[2], pieces[3], pieces[4], places, &memory);
    MUST(count <= room_for);
    for (int64_t i = 0; i < count; i++) MUST(pieces[4][i] >= 0 && pieces[4][i] + pieces[2][i] <= memory);
    for (int64_t i = 0; count >= 0 && i < made.n; i++) MUST(places[i] >= 0 && places[i] + made.sizes[i] <= memory);
    for (int column = 0; column < 5; column++) free(pieces[column]);
    free(places);
    let_go(made);
}

/* Transfers of a small file, of no file and behind the end; some are finished, some dropped, some left to the end. */
static void transfers(input *in) {
    enum { FILE_BYTES = 700, BATCHES = 4, EACH = 3, BYTES = 512 };
    static FILE *file;
    if (!file) {
        file = tmpfile();
        MUST(file);
        for (int at = 0; at < FILE_BYTES; at++) fputc(at & 0xff, file);
        fflush(file);
    }
    int32_t kind = 0;
    void *queue = emlio_disk_open(1 + octet(in) % 5, octet(in) % 3, 1, &kind);
    if (!queue) return;
    void *begun[BATCHES];
    uint8_t *memory[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        memory[batch] = room(EACH * BYTES);
        int64_t columns[5][EACH];
        for (int i = 0; i < EACH; i++) {
            columns[0][i] = octet(in) % 8 ? fileno(file) : -1;
            columns[1][i] = octet(in) * 4;
            columns[2][i] = 1 + octet(in) * 2;
            columns[3][i] = columns[2][i] - octet(in) % columns[2][i];
            columns[4][i] = (int64_t)(uintptr_t)(memory[batch] + i * BYTES);
        }
        begun[batch] = emlio_disk_begin(queue, EACH, columns[0], columns[1], columns[2], columns[3], columns[4], 0);
        MUST(begun[batch]);
    }
    for (int turn = 0; turn < BATCHES; turn++) {
        const int batch = octet(in) % BATCHES;
        int64_t failed;
        const int what = octet(in) % 3;
        if (!begun[batch]) continue;
        if (!what) emlio_disk_push(queue);
        if (what == 1) emlio_disk_finish(queue, begun[batch], memory[batch], 0, 0, 0, 0, &failed), begun[batch] = 0;
        if (what == 2 && emlio_disk_drop(queue, begun[batch])) begun[batch] = 0;
    }
    emlio_disk_stop(queue);
    emlio_disk_close(queue);
    for (int batch = 0; batch < BATCHES; batch++) {
        emlio_disk_free(begun[batch]);
        free(memory[batch]);
    }
}

/* Names that are what is left of the input, of any length and with any bytes; no name may lead out of an empty folder. */
static void names(input *in) {
    static int folder;
    if (!folder) {
        char path[] = "/tmp/hostile-XXXXXX";
        MUST(mkdtemp(path) && (folder = open(path, O_RDONLY | O_DIRECTORY)) > 0 && !rmdir(path));
    }
    enum { FILES = 4, ASKED = 6 };
    int64_t *bounds = NUMBERS(FILES + 1), *column = NUMBERS(FILES), *asked = NUMBERS(ASKED), *opened = NUMBERS(ASKED);
    uint8_t *same = room(ASKED);
    const int32_t direct = octet(in) & 1;
    for (int i = 0; i < ASKED; i++) asked[i] = near(in, i % FILES);
    int64_t at = 0;
    for (int i = 0; i <= FILES; i++) bounds[i] = near(in, at), at += octet(in) % 16;
    for (int i = 0; i < FILES; i++) column[i] = 0;
    const int64_t bytes = (int64_t)in->left;
    uint8_t *text = room(in->left);
    memcpy(text, in->at, in->left);
    const int64_t files[] = {(int64_t)(uintptr_t)text,   bytes, FILES, (int64_t)(uintptr_t)bounds, (int64_t)(uintptr_t)column,
                             (int64_t)(uintptr_t)column, (int64_t)(uintptr_t)column,               (int64_t)(uintptr_t)column};
    emlio_open_files(files, folder, O_RDONLY | O_NONBLOCK, 1, direct, asked, ASKED, opened);
    emlio_look_at_files(files, folder, asked, ASKED, same);
    MUST(!emlio_read_indexed(files, folder, O_RDONLY | O_NONBLOCK, 1, asked, asked, asked, ASKED, same, ASKED));
    for (int i = 0; i < ASKED; i++) MUST(opened[i] < 0 && !same[i]);
    MUST(!emlio_read_files(opened, asked, asked, asked, ASKED, same, ASKED));
    (void)emlio_crc32c_joined((const uint32_t *)asked, asked, ASKED);
    free(bounds), free(column), free(asked), free(opened), free(same), free(text);
}

/* Requests of any kind and size to a small tree, often one that cannot be, mixed with pushes, drops and answers. */
static void requests(input *in) {
    static int device;
    if (!device) MUST((device = open("/dev/null", O_WRONLY)) > 0);
    enum { ENTRIES = 6, TEXT = 24, LINK = 3, MISSES = 8, BYTES = 3 * 4096 };
    int32_t *parents = room(ENTRIES * sizeof *parents), error, results[MISSES];
    uint32_t *modes = room(ENTRIES * sizeof *modes);
    uint8_t *text = room(TEXT), *memory = room(BYTES);
    int64_t *names = NUMBERS(ENTRIES + 1), *links = NUMBERS(ENTRIES + 1), *sizes = NUMBERS(ENTRIES), *times = NUMBERS(ENTRIES);
    const uint32_t kinds[] = {0040555, 0040555, 0100444, 0120777, 0100444, 0100444};
    const int64_t usual[] = {0, 0, BYTES, 0, 100, 0};
    const int hostile = octet(in) % 4 == 0;
    input exact = {in->at, 0}, *from = hostile ? in : &exact;
    memset(text, 'n', TEXT), memset(memory, 'm', BYTES);
    for (int i = 0; i < ENTRIES; i++) {
        parents[i] = (int32_t)near(from, i > 1);
        modes[i] = (uint32_t)near(from, kinds[i]);
        sizes[i] = near(from, usual[i]);
        times[i] = near(from, -5000000001);
        text[i ? i * (i - 1) / 2 : 0] = (uint8_t)('a' + i);
    }
    for (int64_t i = 0, at = 0; i <= ENTRIES; at += i++) names[i] = i ? near(from, at - i + 1 < TEXT ? i * (i - 1) / 2 : 0) : 0;
    for (int i = 0; i <= ENTRIES; i++) links[i] = near(from, i > 3 ? LINK : 0);
    for (int i = 0; i <= ENTRIES; i++) { /* the caller sees to it that the last end lies inside, and C to the rest */
        if (names[i] > TEXT) names[i] = TEXT;
        if (links[i] > TEXT) links[i] = TEXT;
    }
    const int64_t tree[] = {ENTRIES,
                            (int64_t)(uintptr_t)parents,
                            (int64_t)(uintptr_t)text,
                            (int64_t)(uintptr_t)names,
                            (int64_t)(uintptr_t)modes,
                            (int64_t)(uintptr_t)sizes,
                            (int64_t)(uintptr_t)times,
                            (int64_t)(uintptr_t)text,
                            (int64_t)(uintptr_t)links};
    void *session = emlio_fuse_open(tree, device, 0, 0, 1000, &error);
    MUST(hostile || session);
    for (int turn = 0; session && turn < 12 && in->left; turn++) {
        int64_t rows[MISSES * 5], uniques[MISSES], inodes[MISSES], lengths[MISSES];
        const int what = octet(in) % 8;
        if (what > 2) {
            const size_t bytes = octet(in) % 120;
            uint8_t *request = room(bytes);
            for (size_t at = 0; at < bytes; at++) request[at] = octet(in);
            if (bytes >= 16 && octet(in) % 8) {
                const uint32_t head[] = {(uint32_t)bytes, octet(in) % 3 ? request[4] % 56u : 15u};
                memcpy(request, head, sizeof head);
                memset(request + 8, 0, 8), request[8] = (uint8_t)(1 + turn);
            }
            if (bytes >= 24 && octet(in) % 8) memset(request + 17, 0, 7), request[16] %= ENTRIES + 2;
            if (bytes >= 68 && octet(in) % 4) memset(request + 50, 0, 6), memset(request + 58, 0, 2);
            handle(session, request, bytes);
            free(request);
        } else if (what == 0) {
            const int64_t inode = near(in, 3), offset = near(in, 0), size = near(in, BYTES), withheld = near(in, 4096);
            if (size > BYTES) continue;
            const uint8_t *bytes = memory;
            const int64_t pushed[] = {(int64_t)(uintptr_t)&inode, (int64_t)(uintptr_t)&offset,   (int64_t)(uintptr_t)&bytes,
                                      (int64_t)(uintptr_t)&size,  (int64_t)(uintptr_t)&withheld, (int64_t)(uintptr_t)results};
            emlio_fuse_push(session, 1, pushed);
        } else if (what == 1) {
            const int64_t inode = near(in, 3), offset = near(in, 0);
            const uint8_t forgotten = octet(in) % 2;
            emlio_fuse_drop(session, 1, &inode, &offset, &forgotten, 1 << 20);
        } else {
            const uint8_t *bytes[MISSES];
            int32_t errors[MISSES];
            const int64_t count = emlio_fuse_wait(session, rows, MISSES, 0);
            MUST(count >= 0 && count <= MISSES);
            for (int64_t i = 0; i < count; i++) {
                uniques[i] = rows[i * 5], inodes[i] = rows[i * 5 + 1], lengths[i] = rows[i * 5 + 3];
                bytes[i] = memory, errors[i] = octet(in) % 2 * 5;
                MUST(inodes[i] >= 1 && inodes[i] <= ENTRIES && lengths[i] > 0);
                MUST(rows[i * 5 + 2] >= 0 && rows[i * 5 + 2] + lengths[i] <= sizes[inodes[i] - 1]);
                if (lengths[i] > BYTES) lengths[i] = BYTES;
            }
            emlio_fuse_answer(session, count, uniques, inodes, bytes, lengths, errors, results);
        }
    }
    if (session) emlio_fuse_stop(session), emlio_fuse_free(session);
    free(parents), free(modes), free(text), free(memory), free(names), free(links), free(sizes), free(times);
}

/* Any paths, in the tree a/{b, cc}, d/, e -> a. */
static void paths(input *in) {
    static const uint16_t modes[] = {0040555, 0040555, 0040555, 0120777, 0100444, 0100444};
    static const int64_t sizes[] = {3, 2, 0, 1, 7, 7}, bounds[] = {0, 0, 1, 2, 3, 4, 6}, folders[] = {0, 1, 2}, firsts[] = {1, 4, 6};
    static const char *const known[] = {"a", "d", "a/b", "a/cc"}, *const letters[] = {"a", "b", "c", "d", "e", "/", ".", "cc"};
    static const int64_t numbers[] = {1, 2, 4, 5};
    const int64_t tree[] = {(int64_t)(uintptr_t)modes,   (int64_t)(uintptr_t)sizes,  (int64_t)(uintptr_t)"adebcc",
                            (int64_t)(uintptr_t)bounds,  (int64_t)(uintptr_t)folders, (int64_t)(uintptr_t)firsts, 3, 6};
    char text[MOST_RECORDS * 12 + 1] = "";
    int64_t begins[MOST_RECORDS + 1] = {0}, found[MOST_RECORDS];
    const int64_t count = octet(in) % MOST_RECORDS;
    for (int64_t i = 0; i < count; i++) {
        for (int part = octet(in) % 6; part; part--) strcat(text, letters[octet(in) % 8]);
        begins[i + 1] = (int64_t)strlen(text);
    }
    uint8_t *exact = room((size_t)begins[count]);
    memcpy(exact, text, (size_t)begins[count]);
    emlio_find_paths(tree, exact, begins, count, found);
    for (int64_t i = 0; i < count; i++) {
        const size_t bytes = (size_t)(begins[i + 1] - begins[i]);
        int64_t expected = -1;
        for (int at = 0; at < 4; at++)
            if (strlen(known[at]) == bytes && !memcmp(text + begins[i], known[at], bytes)) expected = numbers[at];
        MUST(found[i] == expected);
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const functions[])(input *) = {examples, check, rows, gather, join, names, transfers, requests, paths};
    input in = {data, size};
    functions[octet(&in) % 9](&in);
    return 0;
}

#ifdef OWN_LOOP
/* Without libFuzzer: Examples and frames that are right, with some bytes changed. */

static uint64_t state;

static uint32_t draw(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

static size_t delimited(uint8_t *out, uint8_t tag, const uint8_t *content, size_t bytes) {
    out[0] = tag;
    if (bytes < 0x80) {
        out[1] = (uint8_t)bytes;
        memmove(out + 2, content, bytes);
        return bytes + 2;
    }
    out[1] = (uint8_t)(bytes | 0x80), out[2] = (uint8_t)(bytes >> 7);
    memmove(out + 3, content, bytes);
    return bytes + 3;
}

static size_t example(uint8_t *out, int names) {
    static const char *const known[] = {"a", "b", "image", "label", "", "x"};
    uint8_t all[2000];
    size_t total = 0;
    for (int name = 0; name < names; name++) {
        uint8_t values[40], list[60], feature[80], entry[120];
        size_t count = 4 * draw(8), bytes;
        for (size_t at = 0; at < count; at++) values[at] = (uint8_t)draw(draw(3) ? 0x80 : 0x100);
        bytes = delimited(list, 0x0A, values, count);
        bytes = delimited(feature, (uint8_t[]){0x0A, 0x12, 0x1A}[name % 3], list, bytes);
        size_t head = delimited(entry, 0x0A, (const uint8_t *)known[name], strlen(known[name]));
        bytes = head + delimited(entry + head, 0x12, feature, bytes);
        total += delimited(all + total, 0x0A, entry, bytes);
    }
    return delimited(out, 0x0A, all, total);
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 5;
    state = count > 2 ? strtoull(arguments[2], 0, 10) : 1;
    time_t until = time(0) + (time_t)seconds;
    uint64_t tried = 0;
    while (time(0) < until)
        for (int turn = 0; turn < 2000; turn++, tried++) {
            uint8_t data[4096];
            size_t size = 0;
            data[size++] = (uint8_t)(draw(50) ? (draw(8) + 7) % 9 : 6); /* a queue takes as long as a thousand of the others */
            for (int at = 0; at < 4; at++) data[size++] = (uint8_t)draw(256);
            if (!data[0]) {
                int names = 1 + data[1] % 6;
                data[3] = 1; /* one record that fills the payload */
                data[4] &= (uint8_t)~1;
                size += example(data + size, names);
            } else {
                for (size_t more = draw(600); more; more--) data[size++] = (uint8_t)draw(256);
            }
            for (uint32_t changed = draw(4); changed; changed--) data[draw((uint32_t)size)] ^= (uint8_t)(1 << draw(8));
            uint8_t *exact = room(size);
            memcpy(exact, data, size);
            LLVMFuzzerTestOneInput(exact, size);
            free(exact);
        }
    printf("%llu inputs\n", (unsigned long long)tried);
    return 0;
}
#endif
