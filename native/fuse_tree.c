/* A read-only tree in compact arrays: found by name, listed in the order of its numbers.

   The arrays come from another machine: all of them is checked before anything is looked up. */

#include "fuse.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>

#define MIX 0x9E3779B97F4A7C15ull

static uint64_t hash_of(const tree *of, int64_t folder, const uint8_t *name, size_t bytes) {
    uint64_t hash = of->seed ^ ((uint64_t)folder + bytes) * MIX;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, name + at, bytes - at < 8 ? bytes - at : 8);
        hash = (hash ^ word) * MIX;
        hash ^= hash >> 29;
    }
    return hash ^ hash >> 32;
}

/* Return the slot of a name: the one that has it, or the empty one where it belongs. */
static uint64_t slot_of(const tree *of, int64_t folder, const uint8_t *name, size_t bytes) {
    uint64_t slot = hash_of(of, folder, name, bytes) & of->mask;
    for (int32_t number; (number = of->slots[slot]) >= 0; slot = (slot + 1) & of->mask) {
        size_t length;
        const uint8_t *known = name_at(of, number, &length);
        if (of->of.parents[number] == folder && length == bytes && !memcmp(known, name, bytes)) return slot;
    }
    return slot;
}

int64_t tree_find(const tree *of, int64_t folder, const uint8_t *name, size_t bytes) {
    return of->slots[slot_of(of, folder, name, bytes)];
}

int is_kind(const tree *of, uint64_t inode, uint32_t kind) {
    return inode >= 1 && inode <= (uint64_t)of->of.count && (of->of.modes[inode - 1] & S_IFMT) == kind;
}

static int is_name(const uint8_t *name, int64_t bytes) {
    if (bytes < 1 || bytes > NAME_MAX || memchr(name, '/', (size_t)bytes) || memchr(name, 0, (size_t)bytes)) return 0;
    return !(name[0] == '.' && (bytes == 1 || (bytes == 2 && name[1] == '.')));
}

static int is_entry(const tree *of, int64_t number) {
    const entries *all = &of->of;
    const int64_t name = all->name_bounds[number], link = all->target_bounds[number];
    const int64_t bytes = all->name_bounds[number + 1] - name, target = all->target_bounds[number + 1] - link;
    const uint32_t kind = all->modes[number] & S_IFMT;
    if (all->name_bounds[number + 1] < name || all->target_bounds[number + 1] < link || all->sizes[number] < 0) return 0;
    if (kind != S_IFREG && kind != S_IFDIR && kind != S_IFLNK) return 0;
    if (kind == S_IFLNK ? target < 1 || target >= PATH_MAX || memchr(all->targets + link, 0, (size_t)target) : target) return 0;
    if (!number) return kind == S_IFDIR && !all->parents[0] && !bytes;
    const int32_t parent = all->parents[number];
    return parent >= 0 && parent < number && (all->modes[parent] & S_IFMT) == S_IFDIR && is_name(all->names + name, bytes);
}

/* Children by parent: counted, then each put where its folder's begin, which afterwards is where they end. */
static void sort_children(tree *of) {
    const int64_t count = of->of.count;
    for (int64_t number = 1; number < count; number++) of->first[of->of.parents[number] + 1]++;
    for (int64_t number = 0; number < count; number++) of->first[number + 1] += of->first[number];
    for (int64_t number = 1; number < count; number++) of->children[of->first[of->of.parents[number]]++] = (int32_t)number;
    for (int64_t number = count; number > 0; number--) of->first[number] = of->first[number - 1];
    of->first[0] = 0;
}

void tree_free(tree *of) {
    free(of->first);
    free(of->children);
    free(of->slots);
    of->first = of->children = of->slots = 0;
}

/* Take the arrays, which must stay as they are; return 0, or EINVAL for a wrong entry, EEXIST for a name that is there twice. */
int tree_make(tree *of, const entries *given, uint32_t uid, uint32_t gid) {
    memset(of, 0, sizeof *of);
    of->of = *given;
    of->uid = uid;
    of->gid = gid;
    const int64_t count = given->count;
    if (count < 1 || count > INT32_MAX / 4 || given->name_bounds[0] || given->target_bounds[0]) return EINVAL;
    for (int64_t number = 0; number < count; number++) {
        if (!is_entry(of, number)) return EINVAL;
        if (is_kind(of, (uint64_t)number + 1, S_IFREG)) of->bytes += (uint64_t)given->sizes[number];
    }
    uint64_t slots = 4;
    while (slots < (uint64_t)count * 2) slots *= 2;
    of->mask = slots - 1;
    of->first = calloc((size_t)count + 1, sizeof *of->first);
    of->children = calloc((size_t)count, sizeof *of->children);
    of->slots = malloc(slots * sizeof *of->slots);
    int wrong = of->first && of->children && of->slots ? 0 : ENOMEM;
    if (!wrong && getrandom(&of->seed, sizeof of->seed, 0) != sizeof of->seed) wrong = EIO;
    if (!wrong) {
        memset(of->slots, 0xFF, slots * sizeof *of->slots);
        sort_children(of);
    }
    for (int64_t number = 1; number < count && !wrong; number++) {
        size_t bytes;
        const uint8_t *name = name_at(of, number, &bytes);
        int32_t *slot = &of->slots[slot_of(of, given->parents[number], name, bytes)];
        if (*slot >= 0) wrong = EEXIST;
        else *slot = (int32_t)number;
    }
    if (wrong) tree_free(of);
    return wrong;
}

void tree_attributes(const tree *of, int64_t number, attributes *out) {
    const int64_t mtime = of->of.mtimes_ns[number];
    const uint32_t mode = of->of.modes[number];
    int64_t seconds = mtime / 1000000000, left = mtime % 1000000000;
    if (left < 0) seconds--, left += 1000000000;
    memset(out, 0, sizeof *out);
    out->inode = (uint64_t)number + 1;
    if ((mode & S_IFMT) == S_IFREG) out->size = (uint64_t)of->of.sizes[number];
    if ((mode & S_IFMT) == S_IFLNK) out->size = (uint64_t)(of->of.target_bounds[number + 1] - of->of.target_bounds[number]);
    out->blocks = (out->size + 511) / 512;
    out->atime = out->mtime = out->ctime = (uint64_t)seconds;
    out->atime_ns = out->mtime_ns = out->ctime_ns = (uint32_t)left;
    out->mode = mode;
    out->links = 1; /* of a folder, too: the number of its folders is not known */
    out->uid = of->uid;
    out->gid = of->gid;
    out->block_size = PAGE;
}

/* Write an entry's path below the root, with its final NUL; return 0 or ENAMETOOLONG. */
int tree_path(const tree *of, int64_t number, char *out, size_t room) {
    size_t total = 0, bytes;
    for (int64_t at = number; at; at = of->of.parents[at]) {
        name_at(of, at, &bytes);
        total += bytes + 1;
    }
    if (!total || total > room) return ENAMETOOLONG;
    out[--total] = 0;
    for (int64_t at = number; at; at = of->of.parents[at]) {
        const uint8_t *name = name_at(of, at, &bytes);
        total -= bytes;
        memcpy(out + total, name, bytes);
        if (total) out[--total] = '/';
    }
    return 0;
}
