/* Finding the entries at paths in a tree whose folders' entries follow each other, sorted by the bytes of their names. */

#include "emlio_native.h"

#include <sys/stat.h>

/* A tree as Python has it: the entries of folder `folders[i]` are those from `firsts[i]` on, as many as its size. */
typedef struct {
    const uint16_t *modes;
    const int64_t *sizes;
    const uint8_t *names;
    const int64_t *bounds;
    const int64_t *folders, *firsts;
    int64_t folder_count, count;
} sorted_tree;

/* Return the place of a folder among the folders; it is one. */
static int64_t folder_place(const sorted_tree *of, int64_t folder) {
    int64_t low = 0, high = of->folder_count - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (of->folders[middle] < folder) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Return the entry of a name in the folder at a place; -1 if there is none. */
static int64_t child(const sorted_tree *of, int64_t place, const uint8_t *name, size_t bytes) {
    int64_t low = of->firsts[place], end = low + of->sizes[of->folders[place]], high = end;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const size_t length = (size_t)(of->bounds[middle + 1] - of->bounds[middle]);
        const int order = memcmp(of->names + of->bounds[middle], name, length < bytes ? length : bytes);
        if (!order && length == bytes) return middle;
        if (order < 0 || (!order && length < bytes)) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* Write the number of the entry at each of `n` paths, which begin at `bounds` in `paths`; -1 for those that lead over links or
   to one, that have . or .. or two slashes, or that are not there: a slower search says which. */
EXPORTED void emlio_find_paths(const sorted_tree *of, const uint8_t *paths, const int64_t *bounds, int64_t n, int64_t *found) {
    const uint8_t *last = 0; /* the folder of the path before, */
    size_t last_bytes = 0;
    int64_t last_place = -1; /* and its place */
    for (int64_t at = 0; at < n; at++) {
        const uint8_t *path = paths + bounds[at];
        const size_t bytes = (size_t)(bounds[at + 1] - bounds[at]);
        size_t begin = 0;
        int64_t place = 0, number = -1;
        size_t head = bytes;
        while (head && path[head - 1] != '/') head--;
        if (last && head == last_bytes && !memcmp(path, last, head)) begin = head, place = last_place;
        for (;;) {
            const uint8_t *slash = memchr(path + begin, '/', bytes - begin);
            const size_t end = slash ? (size_t)(slash - path) : bytes;
            if (begin == head) last = path, last_bytes = head, last_place = place;
            number = place < 0 || end == begin ? -1 : child(of, place, path + begin, end - begin);
            if (!slash || number < 0) break;
            place = S_ISDIR(of->modes[number]) ? folder_place(of, number) : -1;
            begin = end + 1;
        }
        found[at] = number < 0 || S_ISLNK(of->modes[number]) ? -1 : number;
    }
}
