/* Requests of the kernel, answered from the tree: names, attributes, listings. All that writes is refused.

   Several threads may serve one device: each request is answered by the thread that read it, or, if its bytes are not here,
   by the call that brings them (fuse_reads.c). They share one descriptor: an answer must be written to the descriptor that
   the request was read from, and a cloned one would only spare them a lock that two threads do not contend for. */

#include "fuse.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    ASYNC_READ = 1 << 0, EXPORT_SUPPORT = 1 << 4, DO_READDIRPLUS = 1 << 13, READDIRPLUS_AUTO = 1 << 14,
    NO_OPEN_SUPPORT = 1 << 17, PARALLEL_DIROPS = 1 << 18, MAX_PAGES = 1 << 22, CACHE_SYMLINKS = 1 << 23,
    NO_OPENDIR_SUPPORT = 1 << 24, INIT_EXT = 1 << 30
};
enum { REQUEST_TIMEOUT = 1 << (42 - 32) }; /* of flags2; since Linux 6.15 */

#define WANTED (ASYNC_READ | EXPORT_SUPPORT | DO_READDIRPLUS | NO_OPEN_SUPPORT | PARALLEL_DIROPS | MAX_PAGES | CACHE_SYMLINKS | \
                NO_OPENDIR_SUPPORT | INIT_EXT)
#define MAJOR 7
#define LEAST_MINOR 29  /* Linux 5.1: NO_OPENDIR_SUPPORT */
#define OWN_MINOR 43
#define VALID_S (1u << 30) /* the tree never changes */
#define BACKGROUND 1024 /* reads of the page cache that may wait at once */
#define MOST_REPLY (1u << 20)
#define READ_BUFFER (1u << 16)

void count_one(session *of, int what) { atomic_fetch_add_explicit(&of->counts[what], 1, memory_order_relaxed); }

/* Write an answer. The kernel may not want it any more: ENOENT then. */
int respond(session *of, uint64_t unique, int error, const void *payload, size_t bytes) {
    if (error) bytes = 0;
    const response head = {(uint32_t)(sizeof head + bytes), -error, unique};
    const struct iovec parts[] = {{(void *)(uintptr_t)&head, sizeof head}, {(void *)(uintptr_t)payload, bytes}};
    if (writev(of->device, parts, bytes ? 2 : 1) >= 0) return 0;
    return errno;
}

static void initialise(session *of, const request *asked, const uint8_t *body, size_t bytes) {
    init_request wanted;
    init_response offered;
    memset(&wanted, 0, sizeof wanted);
    memset(&offered, 0, sizeof offered);
    memcpy(&wanted, body, bytes < sizeof wanted ? bytes : sizeof wanted);
    offered.major = MAJOR;
    offered.minor = OWN_MINOR;
    if (bytes < 16 || wanted.major < MAJOR || (wanted.major == MAJOR && wanted.minor < LEAST_MINOR)) {
        respond(of, asked->unique, EPROTO, 0, 0);
        return;
    }
    if (wanted.major == MAJOR) { /* a newer one asks again for this one */
        const uint64_t limit_s = (uint64_t)(of->limit_ns / 1000000000) * 2 + 1;
        offered.max_readahead = wanted.max_readahead;
        offered.flags = wanted.flags & WANTED;
        if (offered.flags & INIT_EXT && limit_s <= UINT16_MAX) offered.flags2 = wanted.flags2 & REQUEST_TIMEOUT;
        if (offered.flags2) offered.request_timeout_s = (uint16_t)limit_s; /* also where this process is stopped */
        offered.max_background = BACKGROUND;
        offered.congestion_threshold = BACKGROUND / 4 * 3;
        offered.max_write = PAGE;
        offered.time_granularity = 1;
        offered.max_pages = MOST_REPLY / PAGE;
    }
    respond(of, asked->unique, 0, &offered, sizeof offered);
}

static void fill_entry(const tree *files, int64_t number, found_entry *out) {
    memset(out, 0, sizeof *out);
    out->inode = (uint64_t)number + 1;
    out->generation = 1;
    out->name_valid_s = out->attributes_valid_s = VALID_S;
    tree_attributes(files, number, &out->of);
}

static void look_up(session *of, const request *asked, const uint8_t *body, size_t bytes) {
    const tree *files = &of->files;
    const uint8_t *end = memchr(body, 0, bytes);
    found_entry found;
    int64_t number = -1;
    if (!end || !is_kind(files, asked->inode, S_IFDIR)) {
        respond(of, asked->unique, end ? ENOTDIR : EINVAL, 0, 0);
        return;
    }
    const size_t length = (size_t)(end - body);
    if (length > NAME_MAX) {
        respond(of, asked->unique, ENAMETOOLONG, 0, 0);
        return;
    }
    const int64_t folder = (int64_t)asked->inode - 1;
    if (length == 1 && body[0] == '.') number = folder; /* of exported file systems */
    else if (length == 2 && body[0] == '.' && body[1] == '.') number = files->of.parents[folder];
    else number = tree_find(files, folder, body, length);
    if (number < 0) memset(&found, 0, sizeof found), found.name_valid_s = VALID_S; /* also that there is none is kept */
    else fill_entry(files, number, &found);
    respond(of, asked->unique, 0, &found, sizeof found);
}

static void get_attributes(session *of, const request *asked) {
    found_attributes found = {.valid_s = VALID_S};
    tree_attributes(&of->files, (int64_t)asked->inode - 1, &found.of);
    respond(of, asked->unique, 0, &found, sizeof found);
}

static void read_link(session *of, const request *asked) {
    const entries *all = &of->files.of;
    const int64_t number = (int64_t)asked->inode - 1, begin = all->target_bounds[number];
    if (!is_kind(&of->files, asked->inode, S_IFLNK)) respond(of, asked->unique, EINVAL, 0, 0);
    else respond(of, asked->unique, 0, all->targets + begin, (size_t)(all->target_bounds[number + 1] - begin));
}

/* A folder's entries from a place on: itself, its parent, its children. */
static void list(session *of, const request *asked, const read_request *what, int with_attributes) {
    const tree *files = &of->files;
    if (!is_kind(files, asked->inode, S_IFDIR)) {
        respond(of, asked->unique, ENOTDIR, 0, 0);
        return;
    }
    const int64_t folder = (int64_t)asked->inode - 1, begin = files->first[folder];
    const uint64_t places = 2 + (uint64_t)(files->first[folder + 1] - begin);
    const size_t room = what->size < MOST_REPLY ? what->size : MOST_REPLY;
    uint8_t *out = malloc(room ? room : 1);
    size_t used = 0;
    for (uint64_t place = what->offset; out && place < places; place++) {
        const uint8_t *name = (const uint8_t *)"..";
        size_t length = (size_t)place + 1;
        int64_t number = place ? files->of.parents[folder] : folder;
        if (place > 1) {
            number = files->children[begin + (int64_t)place - 2];
            name = name_at(files, number, &length);
        }
        const size_t head = (with_attributes ? sizeof(found_entry) : 0) + sizeof(listed_entry);
        const size_t whole = (head + length + 7) & ~(size_t)7;
        if (whole > room - used) break;
        uint8_t *at = out + used;
        memset(at, 0, whole);
        if (with_attributes) {
            found_entry found;
            fill_entry(files, number, &found);
            if (place < 2) found.inode = 0; /* not looked up */
            memcpy(at, &found, sizeof found);
        }
        const listed_entry entry = {(uint64_t)number + 1, place + 1, (uint32_t)length, files->of.modes[number] >> 12};
        memcpy(at + head - sizeof entry, &entry, sizeof entry);
        memcpy(at + head, name, length);
        used += whole;
    }
    respond(of, asked->unique, out ? 0 : ENOMEM, out, used);
    free(out);
}

static void tell_size(session *of, const request *asked) {
    found_statfs found;
    memset(&found, 0, sizeof found);
    found.blocks = (of->files.bytes + PAGE - 1) / PAGE;
    found.files = (uint64_t)of->files.of.count;
    found.block_size = found.fragment_size = PAGE;
    found.name_bytes = NAME_MAX;
    respond(of, asked->unique, 0, &found, sizeof found);
}

/* What a request without an answer of its own is answered with. What is not known here is done, or refused, by the kernel
   alone once it was told so. */
static int refusal(uint32_t opcode) {
    switch (opcode) {
    case SETATTR: case SYMLINK: case MKNOD: case MKDIR: case UNLINK: case RMDIR: case RENAME: case LINK: case WRITE:
    case SETXATTR: case REMOVEXATTR: case CREATE: case FALLOCATE: case RENAME2: case COPY_FILE_RANGE: case TMPFILE:
        return EROFS;
    case IOCTL:
        return ENOTTY;
    default:
        return ENOSYS; /* also OPEN and OPENDIR: no request for each of them any more */
    }
}

/* Answer one request. What does not have the size of its kind is refused. */
void handle(session *of, const uint8_t *bytes, size_t size) {
    request asked;
    read_request what;
    if (size < sizeof asked) return;
    memcpy(&asked, bytes, sizeof asked);
    if (asked.size != size) return;
    count_one(of, COUNT_REQUESTS);
    const uint8_t *body = bytes + sizeof asked;
    const size_t left = size - sizeof asked;
    const int reads = asked.opcode == READ || asked.opcode == READDIR || asked.opcode == READDIRPLUS;
    if (asked.opcode == FORGET || asked.opcode == BATCH_FORGET) return; /* without an answer: all entries stay */
    if (asked.opcode == INTERRUPT) {
        uint64_t unique;
        if (left < sizeof unique) return;
        memcpy(&unique, body, sizeof unique);
        if (!interrupt_read(of, unique)) respond(of, asked.unique, EAGAIN, 0, 0);
        return;
    }
    if (asked.opcode == INIT) {
        initialise(of, &asked, body, left);
        return;
    }
    if (asked.opcode == STATFS || asked.opcode == DESTROY) {
        if (asked.opcode == STATFS) tell_size(of, &asked);
        else respond(of, asked.unique, 0, 0, 0);
        return;
    }
    if (asked.inode < 1 || asked.inode > (uint64_t)of->files.of.count || (reads && left < sizeof what)) {
        respond(of, asked.unique, EINVAL, 0, 0);
        return;
    }
    if (reads) memcpy(&what, body, sizeof what);
    switch (asked.opcode) {
    case LOOKUP: look_up(of, &asked, body, left); break;
    case GETATTR: get_attributes(of, &asked); break;
    case READLINK: read_link(of, &asked); break;
    case READ: read_file(of, &asked, &what); break;
    case READDIR: case READDIRPLUS: list(of, &asked, &what, asked.opcode == READDIRPLUS); break;
    default: respond(of, asked.unique, refusal(asked.opcode), 0, 0);
    }
}

/* Serve requests until the file system is gone; return the system's error that told so: ENODEV after an unmount. */
EXPORTED int32_t emlio_fuse_serve(session *of) {
    uint8_t *bytes = malloc(READ_BUFFER);
    int error = bytes ? 0 : ENOMEM;
    while (!error) {
        const ssize_t size = read(of->device, bytes, READ_BUFFER);
        if (size > 0) handle(of, bytes, (size_t)size);
        else if (!size) error = ENODEV;
        else if (errno != EINTR && errno != ENOENT && errno != EAGAIN) error = errno;
    }
    free(bytes);
    return error;
}
