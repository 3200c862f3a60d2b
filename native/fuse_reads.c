/* Bytes of files: READs that are answered at once, those that wait, and bytes pushed into the page cache ahead of the reader.

   The one danger is a page that is locked by a READ which waits for bytes, while the call that would bring them stores into
   that page: the call sleeps in the kernel, and not even a signal ends it. So:
   - bytes are answerable before they are stored, and until they are;
   - READs that wait for them are answered first, and their pages not stored;
   - pages of other READs that wait are not touched;
   - no lock is held across a store, and the threads that serve READs never store;
   - where all that fails, the watch ends the connection (fuse_session.c). */

#include "fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BUCKET(inode) ((uint32_t)((inode) * 0x9E3779B97F4A7C15ull >> 50)) /* 14 bits */
_Static_assert(BUCKETS == 1u << (64 - 50), "a bucket is the first bits of a product");

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Wake the watch if it sleeps because there was nothing to watch. Under the lock. */
static void wake_watch(session *of) {
    if (of->watch_sleeps) pthread_cond_signal(&of->work);
    of->watch_sleeps = 0;
}

/* ---- what waits, under the lock ---------------------------------------------------------------------------------------- */

static void queue_up(session *of, waiting *one) {
    one->before = of->queue_last;
    if (of->queue_last) of->queue_last->behind = one;
    else of->queue_first = one;
    of->queue_last = one;
    pthread_cond_signal(&of->missed);
}

static void leave_queue(session *of, waiting *one) {
    if (one->before) one->before->behind = one->behind;
    else of->queue_first = one->behind;
    if (one->behind) one->behind->before = one->before;
    else of->queue_last = one->before;
    one->before = one->behind = 0;
}

/* Take a waiting READ out of everything; `link` leads to it. */
static waiting *take_out(session *of, waiting **link) {
    waiting *one = *link;
    *link = one->next;
    one->next = 0;
    if (!one->told) leave_queue(of, one);
    of->waiting_count--;
    return one;
}

static int covers(const holding *held, uint64_t inode, uint64_t offset, uint64_t size) {
    return held->inode == inode && held->offset <= offset && offset + size <= held->offset + held->size;
}

/* How many bytes a READ gets: no more than the file has. */
static uint64_t wanted_bytes(const session *of, uint64_t inode, uint64_t offset, uint32_t size) {
    const uint64_t whole = (uint64_t)of->files.of.sizes[inode - 1];
    if (offset >= whole) return 0;
    return whole - offset < size ? whole - offset : size;
}

static waiting *make_waiting(uint64_t unique, uint64_t inode, uint64_t offset, uint64_t size, uint32_t pid) {
    waiting *made = calloc(1, sizeof *made);
    if (!made) return 0;
    made->unique = unique;
    made->inode = inode;
    made->offset = offset;
    made->size = (uint32_t)size;
    made->pid = pid;
    made->since_ns = now_ns();
    return made;
}

/* Tell that withheld bytes were read. Without memory it is not told: the reader is thought to be where it was. */
static void see_tripped(session *of, holding *held, uint64_t offset, uint64_t size, uint32_t pid) {
    if (!held->withheld || offset != held->offset) return;
    held->withheld = 0;
    waiting *news = make_waiting(0, held->inode, offset, size, pid);
    if (news) queue_up(of, news);
}

static void link_held(session *of, holding *one) {
    holding **bucket = &of->held[BUCKET(one->inode)];
    one->next = *bucket;
    *bucket = one;
}

static void unlink_held(session *of, holding *one) {
    holding **link = &of->held[BUCKET(one->inode)];
    while (*link && *link != one) link = &(*link)->next;
    if (*link) *link = one->next;
}

/* ---- READ -------------------------------------------------------------------------------------------------------------- */

/* Let a READ wait. Called with the lock, which it lets go. */
static void wait_for_bytes(session *of, const request *asked, uint64_t offset, uint64_t size) {
    waiting *one = of->closing ? 0 : make_waiting(asked->unique, asked->inode, offset, size, asked->pid);
    if (!one) {
        pthread_mutex_unlock(&of->lock);
        respond(of, asked->unique, EIO, 0, 0);
        return;
    }
    waiting **bucket = &of->asked[BUCKET(one->inode)];
    one->next = *bucket;
    *bucket = one;
    of->waiting_count++;
    wake_watch(of);
    queue_up(of, one);
    pthread_mutex_unlock(&of->lock);
    count_one(of, COUNT_MISSED);
}

void read_file(session *of, const request *asked, const read_request *what) {
    if (!is_kind(&of->files, asked->inode, S_IFREG)) {
        respond(of, asked->unique, is_kind(&of->files, asked->inode, S_IFDIR) ? EISDIR : EINVAL, 0, 0);
        return;
    }
    const uint64_t size = wanted_bytes(of, asked->inode, what->offset, what->size);
    if (!size) {
        respond(of, asked->unique, 0, 0, 0);
        return;
    }
    pthread_mutex_lock(&of->lock);
    holding *held = of->held[BUCKET(asked->inode)];
    while (held && !covers(held, asked->inode, what->offset, size)) held = held->next;
    if (!held) {
        wait_for_bytes(of, asked, what->offset, size);
        return;
    }
    held->pins++;
    see_tripped(of, held, what->offset, size, asked->pid);
    const int is_wire = held->is_wire;
    if (is_wire) unlink_held(of, held); /* it has shown what it was there to show */
    pthread_mutex_unlock(&of->lock);
    respond(of, asked->unique, 0, held->bytes + (what->offset - held->offset), size);
    count_one(of, COUNT_ANSWERED);
    if (is_wire) {
        free(held);
        return;
    }
    pthread_mutex_lock(&of->lock);
    if (!--held->pins) pthread_cond_broadcast(&of->released);
    pthread_mutex_unlock(&of->lock);
}

/* ---- what Python hears and answers ------------------------------------------------------------------------------------- */

/* Wait until READs miss, or tripwires are read, at most `timeout_ms`. Each is written to `rows` as its number (0 of a tripwire),
   inode, offset, size, thread. Returns how many there are; -1 once the session is closing. */
EXPORTED int64_t emlio_fuse_wait(session *of, int64_t *rows, int64_t most, int64_t timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    int64_t count = 0;
    pthread_mutex_lock(&of->lock);
    while (!of->queue_first && !of->closing)
        if (pthread_cond_timedwait(&of->missed, &of->lock, &until)) break;
    while (of->queue_first && count < most && !of->closing) {
        waiting *one = of->queue_first;
        int64_t *row = rows + 5 * count++;
        leave_queue(of, one);
        one->told = 1;
        row[0] = (int64_t)one->unique;
        row[1] = (int64_t)one->inode;
        row[2] = (int64_t)one->offset;
        row[3] = (int64_t)one->size;
        row[4] = (int64_t)one->pid;
        if (!one->unique) free(one);
    }
    if (of->queue_first) pthread_cond_signal(&of->missed); /* for another thread that waits */
    if (of->closing) count = -1;
    pthread_mutex_unlock(&of->lock);
    return count;
}

/* Answer READs with bytes, or with errors of the system. `results`: 0; ENOENT if it does not wait any more; EINVAL if bytes are
   too few or too many: it got EIO then, for the kernel would take zeros for what is missing. */
EXPORTED void emlio_fuse_answer(session *of, int64_t n, const int64_t *uniques, const int64_t *inodes, const uint8_t *const *bytes,
                                const int64_t *sizes, const int32_t *errors, int32_t *results) {
    for (int64_t i = 0; i < n; i++) {
        pthread_mutex_lock(&of->lock);
        waiting **link = &of->asked[BUCKET((uint64_t)inodes[i])];
        while (*link && (*link)->unique != (uint64_t)uniques[i]) link = &(*link)->next;
        waiting *one = *link ? take_out(of, link) : 0;
        pthread_mutex_unlock(&of->lock);
        results[i] = ENOENT;
        if (!one) continue;
        const int fits = errors[i] || sizes[i] == (int64_t)one->size;
        if (!fits) count_one(of, COUNT_REFUSED);
        results[i] = fits ? respond(of, one->unique, errors[i], bytes[i], (size_t)sizes[i]) : EINVAL;
        if (!fits) respond(of, one->unique, EIO, 0, 0);
        free(one);
    }
}

/* Remember that the thread of a READ was told to stop; return whether the READ waits here. The watch looks whether it dies. */
int interrupt_read(session *of, uint64_t unique) {
    int found = 0;
    pthread_mutex_lock(&of->lock);
    for (uint32_t bucket = 0; bucket < BUCKETS && of->waiting_count && !found; bucket++)
        for (waiting *one = of->asked[bucket]; one && !found; one = one->next)
            if (one->unique == unique) one->interrupted = found = 1;
    if (found) pthread_cond_signal(&of->work);
    pthread_mutex_unlock(&of->lock);
    return found;
}

/* Answer the READs that `error_of` has an error for. */
void answer_late(session *of, int (*error_of)(const session *, const waiting *, int64_t), int64_t now) {
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
        waiting **link = &of->asked[bucket];
        while (*link) {
            const int error = error_of(of, *link, now);
            if (!error) {
                link = &(*link)->next;
                continue;
            }
            waiting *one = take_out(of, link);
            respond(of, one->unique, error, 0, 0); /* no bytes, no pages: nothing to wait for */
            free(one);
        }
    }
}

/* ---- pushing ----------------------------------------------------------------------------------------------------------- */

/* Files' bytes that a call gives, as Python lays them out. */
typedef struct {
    const int64_t *inodes, *offsets;
    const uint8_t *const *bytes;
    const int64_t *sizes;
    const int64_t *withheld; /* how many bytes are not stored, so that the READ of them is seen */
    int32_t *results;
} pushed;

static int store(session *of, uint64_t inode, uint64_t offset, const uint8_t *bytes, uint64_t size) {
    const store_notice notice = {inode, offset, (uint32_t)size, 0};
    const response head = {(uint32_t)(sizeof head + sizeof notice + size), NOTIFY_STORE, 0};
    const struct iovec parts[] = {{(void *)(uintptr_t)&head, sizeof head},
                                  {(void *)(uintptr_t)&notice, sizeof notice},
                                  {(void *)(uintptr_t)bytes, size}};
    return writev(of->device, parts, 3) < 0 ? errno : 0;
}

/* Whether bytes fill whole pages, or reach the end of the file: only such pages can be used by readers. */
static int fills_pages(const session *of, const pushed *all, int64_t i) {
    const int64_t page = of->page, inode = all->inodes[i], offset = all->offsets[i], size = all->sizes[i];
    if (inode < 1 || !is_kind(&of->files, (uint64_t)inode, S_IFREG) || offset < 0 || size < 1 || size > INT32_MAX) return 0;
    const int64_t whole = of->files.of.sizes[inode - 1], withheld = all->withheld[i];
    if (offset % page || offset > whole || size > whole - offset || ((offset + size) % page && offset + size != whole)) return 0;
    return withheld >= 0 && withheld <= size && (withheld % page == 0 || withheld == size);
}

/* Take out the READs that a holding answers; return them as a list. Under the lock. */
static waiting *answerable(session *of, const holding *held) {
    waiting *list = 0, **link = &of->asked[BUCKET(held->inode)];
    while (*link) {
        if (!covers(held, (*link)->inode, (*link)->offset, (*link)->size)) {
            link = &(*link)->next;
            continue;
        }
        waiting *one = take_out(of, link);
        one->next = list;
        list = one;
    }
    return list;
}

/* Whether a READ waits for a page of these bytes. Under the lock. */
static int is_awaited(const session *of, uint64_t inode, uint64_t offset, uint64_t size) {
    for (const waiting *one = of->asked[BUCKET(inode)]; one; one = one->next)
        if (one->inode == inode && one->offset < offset + size && offset < one->offset + one->size) return 1;
    return 0;
}

/* Answer the READs that wait for the bytes of a holding. Called and left with the lock. */
static void answer_due(session *of, holding *held) {
    waiting *list = answerable(of, held);
    if (!list) return;
    for (waiting *one = list; one; one = one->next) see_tripped(of, held, one->offset, one->size, one->pid);
    pthread_mutex_unlock(&of->lock);
    while (list) {
        waiting *one = list;
        const uint64_t at = one->offset - held->offset;
        list = one->next;
        respond(of, one->unique, 0, held->bytes + at, one->size);
        count_one(of, COUNT_ANSWERED);
        if (!at && one->size > held->filled) held->filled = one->size;
        free(one);
    }
    pthread_mutex_lock(&of->lock);
}

/* Leave a tripwire of a holding's first bytes: a copy, which lasts longer than the call. Without memory there is none. */
static void lay_tripwire(session *of, const holding *held) {
    holding *wire = malloc(sizeof *wire + held->withheld);
    if (!wire) return;
    *wire = (holding){.inode = held->inode,
                      .offset = held->offset,
                      .size = held->withheld,
                      .bytes = (uint8_t *)(wire + 1),
                      .withheld = held->withheld,
                      .is_wire = 1};
    memcpy(wire + 1, held->bytes, held->withheld);
    link_held(of, wire);
}

/* Open the root of the mount; -1 if it is not there. Kept open for a call only: it keeps the file system in use. */
static int open_root(const session *of) {
    struct stat found;
    const int root = of->directory[0] ? open(of->directory, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0 || (!fstat(root, &found) && found.st_dev == of->mounted_device)) return root;
    close(root);
    return -1;
}

/* Make an entry known to the kernel again, which has forgotten it, by a look at its path. -1, or a file to be closed: while it
   is open, the kernel does not forget the entry once more, which it may do at once where memory is short. */
static int make_known(session *of, int *root, uint64_t inode) {
    char path[PATH_MAX];
    struct stat found;
    if (*root < 0) *root = open_root(of);
    if (*root < 0 || tree_path(&of->files, (int64_t)inode - 1, path, sizeof path)) return -1;
    const int known = openat(*root, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (known < 0 || (!fstat(known, &found) && found.st_ino == inode)) return known;
    close(known);
    return -1;
}

static int store_known(session *of, notifying *call, int *root, const holding *held, uint64_t from) {
    const uint64_t offset = held->offset + from, size = held->size - from;
    atomic_store(&call->since_ns, now_ns());
    int result = store(of, held->inode, offset, held->bytes + from, size);
    if (result == ENOENT) {
        count_one(of, COUNT_UNKNOWN);
        const int known = make_known(of, root, held->inode);
        if (known >= 0) {
            result = store(of, held->inode, offset, held->bytes + from, size);
            close(known);
        }
    }
    if (!result) {
        count_one(of, COUNT_STORED);
        atomic_fetch_add_explicit(&of->counts[COUNT_STORED_BYTES], (int64_t)size, memory_order_relaxed);
    }
    return result;
}

static void begin_call(session *of, notifying *call) {
    atomic_init(&call->since_ns, now_ns());
    call->next = of->notifying;
    of->notifying = call;
    wake_watch(of);
}

static void end_call(session *of, const notifying *call) {
    notifying **link = &of->notifying;
    while (*link != call) link = &(*link)->next;
    *link = call->next;
}

/* Store a holding's pages, but those that an answer filled, that are withheld, or that another READ waits for. Called and left
   with the lock. */
static int store_free(session *of, notifying *call, int *root, const holding *held) {
    const uint64_t done = held->filled > held->withheld ? held->filled : held->withheld;
    const uint64_t from = done == held->size ? done : done / (uint64_t)of->page * (uint64_t)of->page;
    if (of->closing) return ENODEV;
    if (from == held->size) return 0;
    if (is_awaited(of, held->inode, held->offset + from, held->size - from)) return EBUSY;
    pthread_mutex_unlock(&of->lock);
    const int result = store_known(of, call, root, held, from);
    pthread_mutex_lock(&of->lock);
    return result;
}

/* Push bytes of `n` files into the page cache. READs that wait for them are answered. `results`: 0; ENOENT if the kernel does
   not know the file, and it cannot be made known; EBUSY if a READ waits for some of these pages and other bytes; EINVAL if they
   do not fill pages. Memory is not used any more after the call; what is withheld is copied. */
EXPORTED void emlio_fuse_push(session *of, int64_t n, const pushed *all) {
    notifying call;
    int root = -1;
    holding *held = calloc(n > 0 ? (size_t)n : 1, sizeof *held);
    for (int64_t i = 0; i < n; i++) {
        all->results[i] = !held ? ENOMEM : fills_pages(of, all, i) ? 0 : EINVAL;
        if (all->results[i]) continue;
        held[i].inode = (uint64_t)all->inodes[i];
        held[i].offset = (uint64_t)all->offsets[i];
        held[i].size = (uint64_t)all->sizes[i];
        held[i].bytes = all->bytes[i];
        held[i].withheld = (uint64_t)all->withheld[i];
    }
    pthread_mutex_lock(&of->lock);
    begin_call(of, &call);
    for (int64_t i = 0; i < n; i++)
        if (!all->results[i]) link_held(of, &held[i]);
    for (int64_t i = 0; i < n; i++)
        if (!all->results[i]) answer_due(of, &held[i]);
    for (int64_t i = 0; i < n; i++) {
        if (all->results[i]) continue;
        all->results[i] = store_free(of, &call, &root, &held[i]);
        unlink_held(of, &held[i]);
        if (held[i].withheld && !of->closing) lay_tripwire(of, &held[i]);
        while (held[i].pins) pthread_cond_wait(&of->released, &of->lock);
    }
    end_call(of, &call);
    pthread_mutex_unlock(&of->lock);
    if (root >= 0) close(root);
    free(held);
}

/* Take the tripwires of a file away whose bytes begin in a range. */
static void take_tripwires(session *of, uint64_t inode, uint64_t offset, uint64_t size) {
    pthread_mutex_lock(&of->lock);
    for (holding **link = &of->held[BUCKET(inode)]; *link;) {
        holding *one = *link;
        if (one->inode != inode || !one->is_wire || one->offset < offset || one->offset - offset >= size) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        free(one);
    }
    pthread_mutex_unlock(&of->lock);
}

/* Let the kernel forget an entry, its attributes and its pages, once it is not in use. It may wait for those who look into the
   folder: the threads that serve them do not come here. */
static int forget(const session *of, uint64_t inode) {
    size_t bytes;
    const uint8_t *name = name_at(&of->files, (int64_t)inode - 1, &bytes);
    const entry_notice notice = {(uint64_t)of->files.of.parents[inode - 1] + 1, (uint32_t)bytes, 0};
    const response head = {(uint32_t)(sizeof head + sizeof notice + bytes + 1), NOTIFY_INVAL_ENTRY, 0};
    const struct iovec parts[] = {{(void *)(uintptr_t)&head, sizeof head},
                                  {(void *)(uintptr_t)&notice, sizeof notice},
                                  {(void *)(uintptr_t)name, bytes},
                                  {(void *)(uintptr_t)"", 1}};
    return writev(of->device, parts, 4) >= 0;
}

/* Free the pages of `size` bytes, from an offset on, of each of `n` files, and take their tripwires away. The kernel forgets
   those that are marked, if it can.

   With an advice, not with FUSE_NOTIFY_INVAL_INODE, which makes the kernel ask for the attributes again, and waits for pages. */
EXPORTED void emlio_fuse_drop(session *of, int64_t n, const int64_t *inodes, const int64_t *offsets, const uint8_t *forgotten,
                              int64_t size) {
    const int root = open_root(of);
    char path[PATH_MAX];
    notifying call;
    pthread_mutex_lock(&of->lock);
    begin_call(of, &call);
    pthread_mutex_unlock(&of->lock);
    for (int64_t i = 0; i < n; i++) {
        if (inodes[i] < 1 || !is_kind(&of->files, (uint64_t)inodes[i], S_IFREG) || offsets[i] < 0) continue;
        const uint64_t inode = (uint64_t)inodes[i];
        take_tripwires(of, inode, (uint64_t)offsets[i], (uint64_t)size);
        atomic_store(&call.since_ns, now_ns());
        const int file = root < 0 || tree_path(&of->files, (int64_t)inode - 1, path, sizeof path)
                             ? -1
                             : openat(root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (file >= 0) {
            if (!posix_fadvise(file, offsets[i], size, POSIX_FADV_DONTNEED)) count_one(of, COUNT_DROPPED);
            close(file);
        }
        /* A program that has it open keeps what is forgotten, so its pages go first. */
        if (forgotten[i] && forget(of, inode)) count_one(of, COUNT_FORGOTTEN);
    }
    pthread_mutex_lock(&of->lock);
    end_call(of, &call);
    pthread_mutex_unlock(&of->lock);
    if (root >= 0) close(root);
}
