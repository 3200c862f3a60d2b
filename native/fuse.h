/* What the files fuse_*.c share: the kernel's structures, a read-only tree, and the session of one mount.

   The kernel's structures are declared here: a machine without its headers must not lose the library. */

#ifndef EMLIO_FUSE_H
#define EMLIO_FUSE_H

#define _GNU_SOURCE

#include "emlio_native.h"

#include <pthread.h>
#include <stdatomic.h>

#define PAGE 4096 /* of what is told of sizes; the machine's own is the session's */

/* ---- the kernel's structures ------------------------------------------------------------------------------------------- */

enum {
    LOOKUP = 1, FORGET, GETATTR, SETATTR, READLINK, SYMLINK, MKNOD = 8, MKDIR, UNLINK, RMDIR, RENAME, LINK, OPEN, READ, WRITE,
    STATFS, RELEASE, FSYNC = 20, SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR,
    ACCESS = 34, CREATE, INTERRUPT, BMAP, DESTROY, IOCTL, BATCH_FORGET = 42, FALLOCATE, READDIRPLUS, RENAME2,
    COPY_FILE_RANGE = 47, TMPFILE = 51
};
enum { NOTIFY_INVAL_ENTRY = 3, NOTIFY_STORE };

typedef struct {
    uint32_t size, opcode;
    uint64_t unique, inode;
    uint32_t uid, gid, pid;
    uint16_t extensions, padding;
} request;

typedef struct {
    uint32_t size;
    int32_t error; /* negative; of a notification its code */
    uint64_t unique;
} response;

typedef struct {
    uint64_t inode, size, blocks, atime, mtime, ctime;
    uint32_t atime_ns, mtime_ns, ctime_ns, mode, links, uid, gid, device, block_size, flags;
} attributes;

typedef struct {
    uint64_t inode, generation, name_valid_s, attributes_valid_s;
    uint32_t name_valid_ns, attributes_valid_ns;
    attributes of;
} found_entry;

typedef struct {
    uint64_t valid_s;
    uint32_t valid_ns, padding;
    attributes of;
} found_attributes;

typedef struct {
    uint32_t major, minor, max_readahead, flags, flags2, unused[11];
} init_request;

typedef struct {
    uint32_t major, minor, max_readahead, flags;
    uint16_t max_background, congestion_threshold;
    uint32_t max_write, time_granularity;
    uint16_t max_pages, map_alignment;
    uint32_t flags2, max_stack_depth;
    uint16_t request_timeout_s, unused[11];
} init_response;

typedef struct {
    uint64_t handle, offset;
    uint32_t size, read_flags;
    uint64_t lock_owner;
    uint32_t flags, padding;
} read_request; /* of READDIR and READDIRPLUS, too */

typedef struct {
    uint64_t inode, next;
    uint32_t name_bytes, kind;
} listed_entry;

typedef struct {
    uint64_t blocks, blocks_free, blocks_available, files, files_free;
    uint32_t block_size, name_bytes, fragment_size, padding, spare[6];
} found_statfs;

typedef struct {
    uint64_t inode, offset;
    uint32_t size, padding;
} store_notice;

typedef struct {
    uint64_t parent;
    uint32_t name_bytes, flags;
} entry_notice; /* the name follows, and a NUL */

_Static_assert(sizeof(entry_notice) == 16, "struct fuse_notify_inval_entry_out");
_Static_assert(sizeof(request) == 40, "struct fuse_in_header");
_Static_assert(sizeof(response) == 16, "struct fuse_out_header");
_Static_assert(sizeof(attributes) == 88, "struct fuse_attr");
_Static_assert(sizeof(found_entry) == 128, "struct fuse_entry_out");
_Static_assert(sizeof(found_attributes) == 104, "struct fuse_attr_out");
_Static_assert(sizeof(init_request) == 64, "struct fuse_init_in");
_Static_assert(sizeof(init_response) == 64, "struct fuse_init_out");
_Static_assert(sizeof(read_request) == 40, "struct fuse_read_in");
_Static_assert(sizeof(listed_entry) == 24, "struct fuse_dirent");
_Static_assert(sizeof(found_statfs) == 80, "struct fuse_statfs_out");
_Static_assert(sizeof(store_notice) == 24, "struct fuse_notify_store_out");

/* ---- the tree ---------------------------------------------------------------------------------------------------------- */

/* The entries, by number: inode - 1. The root is the first; a parent comes before what lies in it. Names and targets of links
   are bytes one after the other, with where each begins and the last ends. */
typedef struct {
    int64_t count;
    const int32_t *parents;
    const uint8_t *names;
    const int64_t *name_bounds;
    const uint32_t *modes;
    const int64_t *sizes, *mtimes_ns;
    const uint8_t *targets;
    const int64_t *target_bounds;
} entries;

typedef struct {
    entries of;
    int32_t *first;    /* (count + 1) where the children of each begin in `children`, and the end of the last ones */
    int32_t *children; /* (count - 1) by parent, in the order of their numbers */
    int32_t *slots;    /* a hash table of the names in their folders; -1 where none is */
    uint64_t mask, seed;
    uint64_t bytes; /* of all files */
    uint32_t uid, gid;
} tree;

int tree_make(tree *of, const entries *given, uint32_t uid, uint32_t gid);
void tree_free(tree *of);
int64_t tree_find(const tree *of, int64_t folder, const uint8_t *name, size_t bytes);
void tree_attributes(const tree *of, int64_t number, attributes *out);
int tree_path(const tree *of, int64_t number, char *out, size_t room);
int is_kind(const tree *of, uint64_t inode, uint32_t kind);

static inline const uint8_t *name_at(const tree *of, int64_t number, size_t *bytes) {
    *bytes = (size_t)(of->of.name_bounds[number + 1] - of->of.name_bounds[number]);
    return of->of.names + of->of.name_bounds[number];
}

/* ---- the session ------------------------------------------------------------------------------------------------------- */

/* Bytes of a file that can be answered though the page cache has them not: for the time of a call, or of a tripwire. */
typedef struct holding {
    struct holding *next;
    uint64_t inode, offset, size;
    const uint8_t *bytes;
    uint64_t withheld; /* as many at the beginning are not stored, so that their READ is seen; 0 once it was */
    uint64_t filled;   /* as many at the beginning the kernel has from answers */
    int32_t pins;      /* answers that are being written from the bytes */
    int32_t is_wire;   /* a tripwire, whose bytes belong to it */
} holding;

/* A READ that waits for its bytes; or, without a number of a request, the news that a tripwire was read. */
typedef struct waiting {
    struct waiting *next;            /* in its bucket */
    struct waiting *before, *behind; /* in the queue of those not told, or 0 */
    uint64_t unique, inode, offset;
    uint32_t size, pid;
    int64_t since_ns;
    int32_t told, interrupted;
} waiting;

/* A call that may have to wait for a page in the kernel. */
typedef struct notifying {
    struct notifying *next;
    _Atomic int64_t since_ns;
} notifying;

enum { COUNT_REQUESTS, COUNT_ANSWERED, COUNT_MISSED, COUNT_STORED, COUNT_STORED_BYTES, COUNT_UNKNOWN, COUNT_DROPPED,
       COUNT_FORGOTTEN, COUNT_LATE, COUNT_REFUSED, COUNTS };

#define BUCKETS (1u << 14)

typedef struct {
    tree files;
    int32_t device;
    int64_t limit_ns; /* for a READ, and for a page */
    int64_t page;
    char *directory; /* where it is mounted, "" before */
    uint64_t mounted_device;
    _Atomic int64_t counts[COUNTS];
    _Atomic int32_t aborted;
    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t missed, released, work;
    int32_t closing, waiting_count, watch_sleeps;
    holding *held[BUCKETS];
    waiting *asked[BUCKETS];
    waiting *queue_first, *queue_last;
    notifying *notifying;
} session;

int64_t now_ns(void);
void count_one(session *of, int what);
int respond(session *of, uint64_t unique, int error, const void *payload, size_t bytes);
void read_file(session *of, const request *asked, const read_request *what);
int interrupt_read(session *of, uint64_t unique);
void answer_late(session *of, int (*error_of)(const session *, const waiting *, int64_t), int64_t now);
void handle(session *of, const uint8_t *bytes, size_t size);

#endif
