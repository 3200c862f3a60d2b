/* Opening many files below a folder in one call, reading them, and looking at them by name, if they are still those that were
   indexed.

   Only what is exactly as expected is opened, read, or found the same. All else, an error too, is left to the caller, who looks at
   such a file by itself and says what is wrong. */

#define _GNU_SOURCE

#include "emlio_native.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPENAT2 437 /* on every architecture except Alpha */
#define NO_MAGIC_LINKS 0x02
#define BENEATH 0x08

typedef struct {
    uint64_t flags, mode, resolve;
} how;

/* The files, by number: the names' bytes one after the other, where each begins and the last ends, and what identifies each. */
typedef struct {
    const char *names;
    int64_t names_bytes, count;
    const int64_t *bounds, *sizes, *mtimes, *ctimes, *inodes;
} indexed;

_Static_assert(sizeof(void *) == 8, "the table has eight bytes for each address");

/* Write the name of a file with its final NUL; return 0, or the reason why it cannot be. */
static int name_of(const indexed *files, int64_t number, char out[PATH_MAX]) {
    if (number < 0 || number >= files->count) return EINVAL;
    const int64_t begin = files->bounds[number], end = files->bounds[number + 1];
    if (begin < 0 || end < begin || end > files->names_bytes) return EINVAL;
    if (end - begin >= PATH_MAX) return ENAMETOOLONG;
    const size_t bytes = (size_t)(end - begin);
    if (bytes && memchr(files->names + begin, 0, bytes)) return EINVAL;
    if (bytes) memcpy(out, files->names + begin, bytes);
    out[bytes] = 0;
    return 0;
}

static int is_time(struct timespec found, int64_t expected_ns) {
    int64_t ns;
    return !__builtin_mul_overflow((int64_t)found.tv_sec, 1000000000, &ns) && !__builtin_add_overflow(ns, found.tv_nsec, &ns) &&
           ns == expected_ns;
}

static int is_same(const indexed *files, int64_t number, const struct stat *found) {
    return S_ISREG(found->st_mode) && (int64_t)found->st_ino == files->inodes[number] && found->st_size == files->sizes[number] &&
           is_time(found->st_mtim, files->mtimes[number]) && is_time(found->st_ctim, files->ctimes[number]);
}

/* Open a file; return its descriptor, or what is wrong as a negative number: ESTALE if it is not the indexed one. */
static int open_same(const indexed *files, int64_t number, int folder, int flags, int beneath, int direct) {
    char name[PATH_MAX];
    struct stat found;
    int wrong = name_of(files, number, name);
    if (wrong) return -wrong;
    const how by_kernel = {(uint64_t)(uint32_t)flags | O_CLOEXEC, 0, BENEATH | NO_MAGIC_LINKS};
    const int opened = beneath ? (int)syscall(OPENAT2, folder, name, &by_kernel, sizeof by_kernel)
                               : openat(folder, name, flags | O_CLOEXEC);
    if (opened < 0) return -errno;
    if (fstat(opened, &found))
        wrong = errno;
    else if (!is_same(files, number, &found))
        wrong = ESTALE;
    else if (direct && fcntl(opened, F_SETFL, O_RDONLY | O_DIRECT)) /* not O_NONBLOCK any more, with which io_uring may fail */
        wrong = errno;
    if (!wrong) return opened;
    close(opened);
    return -wrong;
}

/* Open the files of `n` numbers, with these flags of open(2), and then O_DIRECT if `direct`.

   With `beneath` no link is followed out of the folder. `opened` gets each file's descriptor, or what is wrong as a negative
   number. */
EXPORTED void emlio_open_files(const indexed *files, int32_t folder, int32_t flags, int32_t beneath, int32_t direct,
                               const int64_t *numbers, int64_t n, int64_t *opened) {
    for (int64_t i = 0; i < n; i++) opened[i] = open_same(files, numbers[i], folder, flags, beneath, direct);
}

/* Look at the files of `n` numbers by name; `same` gets 1 for each that is the indexed one. A link is none. */
EXPORTED void emlio_look_at_files(const indexed *files, int32_t folder, const int64_t *numbers, int64_t n, uint8_t *same) {
    for (int64_t i = 0; i < n; i++) {
        char name[PATH_MAX];
        struct stat found;
        same[i] = !name_of(files, numbers[i], name) && !fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) &&
                  is_same(files, numbers[i], &found);
    }
}

/* Read bytes of a file that is opened for that alone; return whether all came, of one that is the indexed one before and after. */
static int read_same(const indexed *files, int64_t number, int folder, int flags, int beneath, int64_t start, int64_t size,
                     uint8_t *out) {
    const int opened = open_same(files, number, folder, flags, beneath, 0);
    if (opened < 0) return 0;
    struct stat found;
    int64_t got = 0, more = 1;
    while (got < size && (more = pread(opened, out + got, (size_t)(size - got), start + got)) > 0) got += more;
    const int all = got == size && !fstat(opened, &found) && is_same(files, number, &found);
    close(opened);
    return all;
}

/* Read `n` ranges of files, one after the other into the `room` bytes at `out`; return how many came, up to the first that did
   not. The other arguments are those of `emlio_open_files`. */
EXPORTED int64_t emlio_read_indexed(const indexed *files, int32_t folder, int32_t flags, int32_t beneath, const int64_t *numbers,
                                  const int64_t *starts, const int64_t *sizes, int64_t n, uint8_t *out, int64_t room) {
    for (int64_t i = 0; i < n; i++) {
        if (starts[i] < 0 || sizes[i] < 0 || sizes[i] > room) return i;
        if (!read_same(files, numbers[i], folder, flags, beneath, starts[i], sizes[i], out)) return i;
        out += sizes[i], room -= sizes[i];
    }
    return n;
}

EXPORTED void emlio_close_files(const int64_t *opened, int64_t n) {
    for (int64_t i = 0; i < n; i++) close((int)opened[i]);
}

/* Read `sizes` bytes of `n` open files from `offsets` on, to `places` in `out`. Returns how many were read before the first
   that was not, in full: its file is shorter, or the system has an error. */
EXPORTED int64_t emlio_read_files(const int64_t *opened, const int64_t *offsets, const int64_t *sizes, const int64_t *places,
                                  int64_t n, uint8_t *out, uint64_t out_bytes) {
    for (int64_t i = 0; i < n; i++) {
        if (opened[i] < 0 || opened[i] > INT_MAX || offsets[i] < 0 || sizes[i] < 0 || places[i] < 0) return i;
        if ((uint64_t)places[i] > out_bytes || (uint64_t)sizes[i] > out_bytes - (uint64_t)places[i]) return i;
        for (int64_t done = 0, got; done < sizes[i]; done += got) {
            got = pread((int)opened[i], out + places[i] + done, (size_t)(sizes[i] - done), offsets[i] + done);
            if (got <= 0) return i;
        }
    }
    return n;
}
