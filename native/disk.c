/* A queue of reads and writes that the kernel carries out beside this process: io_uring, or else Linux AIO.

   A batch is some transfers that are finished together. Beginning one takes no lock and no system call; finishing one gives the
   kernel what was begun, waits, and copies what was read to where it belongs. Several threads may begin and finish batches of
   one queue; one of them waits in the kernel at a time, for all. The memory of a batch must stay until it is finished, or until
   the queue is closed. Results are checked: what comes short is asked for again, and what cannot be had is told.

   The kernel's structures are declared here: a machine without its headers must not lose the library. */

#define _GNU_SOURCE

#include "emlio_native.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ENDED_EARLY (-1) /* the file has fewer bytes than were asked for */
#define STILL_BEGUN (-1)
#define RETRIES 5000     /* of one transfer for which the kernel has no resources now: a second */

/* ---- the kernel's structures ------------------------------------------------------------------------------------------- */

enum { NR_SETUP = 425, NR_ENTER = 426 }; /* io_uring_setup, io_uring_enter: the same numbers on every machine */
enum { OP_READ = 22, OP_WRITE = 23, ENTER_GETEVENTS = 1, FEATURE_SINGLE_MAP = 1 };
#define RING_SQ 0ll
#define RING_CQ 0x8000000ll
#define RING_SQES 0x10000000ll

typedef struct {
    uint32_t head, tail, mask, entries, flags, dropped, array, reserved;
    uint64_t user_address;
} sq_offsets;

typedef struct {
    uint32_t head, tail, mask, entries, overflow, cqes, flags, reserved;
    uint64_t user_address;
} cq_offsets;

typedef struct {
    uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, reserved[3];
    sq_offsets sq;
    cq_offsets cq;
} ring_parameters;

typedef struct {
    uint8_t opcode, flags;
    uint16_t priority;
    int32_t descriptor;
    uint64_t offset, address;
    uint32_t length, rw_flags;
    uint64_t user_data, unused[3];
} ring_submission;

typedef struct {
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
} ring_completion;

_Static_assert(sizeof(ring_parameters) == 120, "struct io_uring_params");
_Static_assert(sizeof(ring_submission) == 64, "struct io_uring_sqe");
_Static_assert(sizeof(ring_completion) == 16, "struct io_uring_cqe");

enum { AIO_READ = 0, AIO_WRITE = 1 };

typedef struct {
    uint64_t data;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t key, rw_flags;
#else
    uint32_t rw_flags, key;
#endif
    uint16_t opcode;
    int16_t priority;
    uint32_t descriptor;
    uint64_t address, length;
    int64_t offset;
    uint64_t unused;
    uint32_t flags, event_descriptor;
} aio_request;

typedef struct {
    uint64_t data, request;
    int64_t result, result2;
} aio_event;

_Static_assert(sizeof(aio_request) == 64, "struct iocb");
_Static_assert(sizeof(aio_event) == 32, "struct io_event");

/* ---- values ------------------------------------------------------------------------------------------------------------ */

typedef struct batch batch;

typedef struct {
    batch *of;
    int64_t offset, size, needed, done;
    uint8_t *memory;
    int32_t descriptor, retries;
} transfer;

struct batch {
    batch *next;         /* in the list of those begun, then in the queue */
    int64_t count, left; /* transfers, and those not done */
    int64_t given;       /* to the kernel at least once */
    int64_t failed;      /* the first of its transfers that failed */
    int32_t error;
    int32_t writes;
    transfer transfers[];
};

enum { URING = 1, AIO = 2 };

typedef struct {
    int32_t kind, depth, align;
    pthread_mutex_t lock; /* for everything below but `begun` */
    pthread_cond_t moved;
    int32_t waiting, closing;
    int32_t in_flight; /* given to the kernel, or in the ring */
    int32_t starved;   /* the kernel had no resources for the transfer that ended last */
    _Atomic(int64_t) waited_ns, waits_since; /* for the kernel, by one thread at a time; 0 if it does not wait now */
    _Atomic(batch *) begun;
    batch *first, *last; /* with transfers not given */
    transfer **again;    /* to be given once more; there is room for `depth` */
    int32_t again_count;
    /* io_uring */
    int ring;
    uint8_t *sq_map, *cq_map;
    size_t sq_bytes, cq_bytes, sqe_bytes;
    ring_submission *sqes;
    _Atomic(uint32_t) *sq_head, *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    ring_completion *cqes;
    /* Linux AIO */
    unsigned long context;
    aio_request *requests, **spare; /* `depth` of them, and those not in use */
    int32_t spares;
    aio_event *events;
} queue;

/* ---- opening ----------------------------------------------------------------------------------------------------------- */

static int open_ring(queue *of) {
    ring_parameters made;
    memset(&made, 0, sizeof made);
    long ring = syscall(NR_SETUP, (unsigned)of->depth, &made);
    if (ring < 0) return errno;
    of->ring = (int)ring;
    of->sq_bytes = made.sq.array + made.sq_entries * sizeof(uint32_t);
    of->cq_bytes = made.cq.cqes + made.cq_entries * sizeof(ring_completion);
    of->sqe_bytes = made.sq_entries * sizeof(ring_submission);
    int one_map = made.features & FEATURE_SINGLE_MAP;
    if (one_map && of->cq_bytes > of->sq_bytes) of->sq_bytes = of->cq_bytes;
    const int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_POPULATE;
    of->sq_map = mmap(0, of->sq_bytes, access, how, of->ring, RING_SQ);
    of->cq_map = one_map ? of->sq_map : mmap(0, of->cq_bytes, access, how, of->ring, RING_CQ);
    of->sqes = mmap(0, of->sqe_bytes, access, how, of->ring, RING_SQES);
    if (of->sq_map == MAP_FAILED || of->cq_map == MAP_FAILED || (void *)of->sqes == MAP_FAILED) return errno;
    of->sq_head = (void *)(of->sq_map + made.sq.head);
    of->sq_tail = (void *)(of->sq_map + made.sq.tail);
    of->sq_mask = *(uint32_t *)(void *)(of->sq_map + made.sq.mask);
    of->cq_head = (void *)(of->cq_map + made.cq.head);
    of->cq_tail = (void *)(of->cq_map + made.cq.tail);
    of->cq_mask = *(uint32_t *)(void *)(of->cq_map + made.cq.mask);
    of->cqes = (void *)(of->cq_map + made.cq.cqes);
    uint32_t *array = (void *)(of->sq_map + made.sq.array);
    for (uint32_t i = 0; i < made.sq_entries; i++) array[i] = i;
    return 0;
}

static void close_ring(queue *of) {
    if (of->sqes && (void *)of->sqes != MAP_FAILED) munmap(of->sqes, of->sqe_bytes);
    if (of->cq_map && of->cq_map != MAP_FAILED && of->cq_map != of->sq_map) munmap(of->cq_map, of->cq_bytes);
    if (of->sq_map && of->sq_map != MAP_FAILED) munmap(of->sq_map, of->sq_bytes);
    if (of->ring >= 0) close(of->ring);
    of->sqes = 0;
    of->sq_map = of->cq_map = 0;
    of->ring = -1;
}

static int open_aio(queue *of) {
    if (syscall(SYS_io_setup, (unsigned)of->depth, &of->context)) return errno;
    of->requests = calloc((size_t)of->depth, sizeof *of->requests);
    of->spare = calloc((size_t)of->depth, sizeof *of->spare);
    of->events = calloc((size_t)of->depth, sizeof *of->events);
    if (!of->requests || !of->spare || !of->events) return ENOMEM;
    for (int32_t i = 0; i < of->depth; i++) of->spare[of->spares++] = &of->requests[i];
    return 0;
}

static void close_aio(queue *of) {
    if (of->context) syscall(SYS_io_destroy, of->context);
    of->context = 0;
    free(of->requests);
    free(of->spare);
    free(of->events);
}

static void release(queue *of) {
    close_ring(of);
    close_aio(of);
    free(of->again);
    pthread_cond_destroy(&of->moved);
    pthread_mutex_destroy(&of->lock);
    free(of);
}

/* Open a queue of at most `depth` transfers at the kernel. `kind`: URING, AIO, or 0 for the first that works. `align`: the
   multiple at which a transfer that came short can go on. Returns the queue, and its kind; or 0, and the system's error. */
EXPORTED void *emlio_disk_open(int32_t depth, int32_t kind, int32_t align, int32_t *kind_or_error) {
    *kind_or_error = EINVAL;
    if (depth < 1 || depth > 4096 || align < 1) return 0;
    queue *of = calloc(1, sizeof *of);
    *kind_or_error = ENOMEM;
    if (!of) return 0;
    of->depth = depth;
    of->align = align;
    of->ring = -1;
    pthread_mutex_init(&of->lock, 0);
    pthread_cond_init(&of->moved, 0);
    of->again = calloc((size_t)depth, sizeof *of->again);
    int error = of->again ? EINVAL : ENOMEM;
    if (of->again && kind != AIO) {
        error = open_ring(of);
        of->kind = URING;
        if (error) close_ring(of);
    }
    if (of->again && (kind == AIO || (error && !kind))) {
        error = open_aio(of);
        of->kind = AIO;
    }
    if (error) {
        release(of);
        *kind_or_error = error;
        return 0;
    }
    *kind_or_error = of->kind;
    return of;
}

/* What transfers past the page cache must be aligned to, for a file: the larger of its memory's and its offsets'. 0 if the file
   system offers none, or the kernel is older than 6.1 and does not tell. Less than none is the system's error. */
EXPORTED int64_t emlio_disk_alignment(int32_t descriptor) {
    enum { AT_EMPTY = 0x1000, MASK_DIOALIGN = 0x2000, AT_MASK = 0, AT_MEMORY = 38, AT_OFFSET = 39 };
    uint32_t found[64]; /* struct statx, in words */
    memset(found, 0, sizeof found);
    if (syscall(SYS_statx, descriptor, "", AT_EMPTY, MASK_DIOALIGN, found)) return -errno;
    if (!(found[AT_MASK] & MASK_DIOALIGN)) return 0;
    return found[AT_MEMORY] > found[AT_OFFSET] ? found[AT_MEMORY] : found[AT_OFFSET];
}

/* ---- giving to the kernel, under the lock ------------------------------------------------------------------------------ */

static transfer *next_transfer(queue *of, batch *wanted) {
    if (of->again_count) return of->again[--of->again_count];
    if (wanted && wanted->given < wanted->count) return &wanted->transfers[wanted->given++];
    while (of->first && of->first->given == of->first->count) {
        of->first = of->first->next;
        if (!of->first) of->last = 0;
    }
    return of->first ? &of->first->transfers[of->first->given++] : 0;
}

static void take_begun(queue *of) {
    batch *stack = atomic_exchange(&of->begun, 0), *in_order = 0;
    while (stack) { /* the last begun lies on top */
        batch *below = stack->next;
        stack->next = in_order;
        in_order = stack;
        stack = below;
    }
    if (!in_order) return;
    if (of->last) of->last->next = in_order;
    else of->first = in_order;
    while (in_order->next) in_order = in_order->next;
    of->last = in_order;
}

static void completed(queue *of, transfer *one, int64_t result) {
    batch *whole = one->of;
    of->in_flight--;
    of->starved = result == -EAGAIN;
    if (result > 0) one->done += result, one->retries = 0;
    /* The kernel cancels what a thread gave it, for whichever batch, when that thread ends: with ECANCELED or EFAULT. */
    if (result == -EAGAIN || result == -EINTR || result == -ECANCELED || result == -EFAULT) {
        if (++one->retries < RETRIES && !whole->error) {
            of->again[of->again_count++] = one;
            return;
        }
    }
    int32_t error = 0;
    if (result < 0) error = (int32_t)-result;
    else if (one->done >= one->needed) error = 0;
    else if (!result || one->done % of->align) error = ENDED_EARLY;
    else if (!whole->error) {
        of->again[of->again_count++] = one;
        return;
    }
    if (error && !whole->error) {
        whole->error = error;
        whole->failed = one - whole->transfers;
    }
    whole->left--;
}

static void fill_ring(queue *of, transfer *one) {
    uint32_t tail = atomic_load_explicit(of->sq_tail, memory_order_relaxed);
    ring_submission *entry = &of->sqes[tail & of->sq_mask];
    memset(entry, 0, sizeof *entry);
    entry->opcode = one->of->writes ? OP_WRITE : OP_READ;
    entry->descriptor = one->descriptor;
    entry->offset = (uint64_t)(one->offset + one->done);
    entry->address = (uint64_t)(uintptr_t)(one->memory + one->done);
    entry->length = (uint32_t)(one->size - one->done);
    entry->user_data = (uint64_t)(uintptr_t)one;
    atomic_store_explicit(of->sq_tail, tail + 1, memory_order_release);
}

static aio_request *fill_aio(queue *of, transfer *one) {
    aio_request *entry = of->spare[--of->spares];
    memset(entry, 0, sizeof *entry);
    entry->data = (uint64_t)(uintptr_t)one;
    entry->opcode = one->of->writes ? AIO_WRITE : AIO_READ;
    entry->descriptor = (uint32_t)one->descriptor;
    entry->address = (uint64_t)(uintptr_t)(one->memory + one->done);
    entry->length = (uint64_t)(one->size - one->done);
    entry->offset = one->offset + one->done;
    return entry;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A thread waits for the kernel. Only one does so at a time. */
static void wait_begins(queue *of) { atomic_store_explicit(&of->waits_since, now_ns(), memory_order_relaxed); }

static void wait_ends(queue *of) {
    const int64_t since = atomic_exchange_explicit(&of->waits_since, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->waited_ns, now_ns() - since, memory_order_relaxed);
}

static void give_aio(queue *of, aio_request **entries, int32_t count) {
    const int waits = !of->waiting; /* the kernel may wait for the disk to take them */
    if (waits) wait_begins(of);
    while (count) {
        long taken = syscall(SYS_io_submit, of->context, (long)count, entries);
        if (taken > 0) {
            entries += taken;
            count -= (int32_t)taken;
            continue;
        }
        if (taken < 0 && errno == EINTR) continue;
        /* The first entry is at fault, or the kernel has no resources now, which is tried again after a completion. */
        int error = taken < 0 ? errno : EAGAIN;
        of->spare[of->spares++] = *entries;
        completed(of, (transfer *)(uintptr_t)(*entries)->data, -error);
        entries++;
        count--;
    }
    if (waits) wait_ends(of);
}

/* Give the kernel as many transfers as the queue's depth allows, those of `wanted` first. */
static void give(queue *of, batch *wanted) {
    aio_request *entries[64];
    int32_t count = 0, most = of->kind == AIO ? 64 : of->depth;
    take_begun(of);
    while (of->in_flight < of->depth) {
        transfer *one = next_transfer(of, wanted);
        if (!one) break;
        of->in_flight++;
        if (one->of->error) { /* nothing of a batch that failed is worth the disk's time */
            completed(of, one, -ECANCELED);
            continue;
        }
        if (of->kind == URING) fill_ring(of, one);
        else entries[count++] = fill_aio(of, one);
        if (count == most) {
            give_aio(of, entries, count);
            count = 0;
            if (of->starved) break; /* those that were refused would be given again at once */
        }
    }
    if (count) give_aio(of, entries, count);
}

/* Take what the ring has completed. Not while a thread waits in the kernel: that waits until the ring holds so many. */
static void take_ring(queue *of) {
    if (of->kind != URING || of->waiting) return;
    uint32_t head = atomic_load_explicit(of->cq_head, memory_order_relaxed);
    const uint32_t tail = atomic_load_explicit(of->cq_tail, memory_order_acquire);
    for (; head != tail; head++) {
        const ring_completion *entry = &of->cqes[head & of->cq_mask];
        completed(of, (transfer *)(uintptr_t)entry->user_data, entry->result);
    }
    atomic_store_explicit(of->cq_head, head, memory_order_release);
}

/* Tell the kernel what the ring holds, and wait for so many completions. Returns the system's error. */
static int enter(queue *of, int32_t least) {
    const uint32_t filled = atomic_load_explicit(of->sq_tail, memory_order_acquire) -
                            atomic_load_explicit(of->sq_head, memory_order_acquire);
    if (!filled && !least) return 0;
    const unsigned how = least ? ENTER_GETEVENTS : 0;
    return syscall(NR_ENTER, of->ring, filled, (unsigned)least, how, (void *)0, (size_t)0) < 0 ? errno : 0;
}

/* Take at least `least` events of Linux AIO, without the lock. Returns how many, or less than none for the system's error. */
static long aio_events(queue *of, int32_t least) {
    const struct timespec now = {0, 0};
    long got = syscall(SYS_io_getevents, of->context, (long)least, (long)of->depth, of->events, least ? 0 : &now);
    return got < 0 ? -errno : got;
}

/* Take what is done; wait in the kernel, without the lock, until that are `least`. Returns the system's error. One thread at a
   time may do so: `waiting`. */
static int take_done(queue *of, int32_t least) {
    int error = 0;
    of->waiting = 1;
    pthread_mutex_unlock(&of->lock);
    wait_begins(of);
    long got = of->kind == AIO ? aio_events(of, least) : 0;
    if (got < 0) error = (int)-got;
    if (of->kind == URING) error = enter(of, least);
    wait_ends(of);
    pthread_mutex_lock(&of->lock);
    of->waiting = 0;
    take_ring(of);
    for (long i = 0; i < got; i++) {
        const aio_event *event = &of->events[i];
        of->spare[of->spares++] = (aio_request *)(uintptr_t)event->request;
        completed(of, (transfer *)(uintptr_t)event->data, event->result);
    }
    pthread_cond_broadcast(&of->moved);
    return error == EINTR || error == EAGAIN || error == EBUSY ? 0 : error;
}

/* Give another process's transfers a moment to end, where the kernel has no resources for ours. */
static void pause_briefly(queue *of) {
    const struct timespec moment = {0, 200000};
    pthread_mutex_unlock(&of->lock);
    nanosleep(&moment, 0);
    pthread_mutex_lock(&of->lock);
}


/* ---- batches ----------------------------------------------------------------------------------------------------------- */

/* Begin `count` transfers, of which the kernel hears when one is finished. Of each: the descriptor, the first byte in the
   file, the size, how many of these bytes there must be, the memory's address. Returns the batch; 0 without memory. */
EXPORTED void *emlio_disk_begin(void *disk, int64_t count, const int64_t *descriptors, const int64_t *offsets, const int64_t *sizes,
                                const int64_t *needed, const int64_t *addresses, int32_t writes) {
    queue *of = disk;
    batch *made = calloc(1, sizeof *made + (size_t)count * sizeof(transfer));
    if (!made) return 0;
    made->count = made->left = count;
    made->writes = writes;
    for (int64_t i = 0; i < count; i++)
        made->transfers[i] = (transfer){
            .of = made,
            .offset = offsets[i],
            .size = sizes[i],
            .needed = needed[i],
            .memory = (uint8_t *)(uintptr_t)addresses[i],
            .descriptor = (int32_t)descriptors[i],
        };
    made->next = atomic_load(&of->begun);
    while (!atomic_compare_exchange_weak(&of->begun, &made->next, made)) continue;
    return made;
}

static void unlink_batch(queue *of, batch *gone) {
    take_begun(of);
    batch *before = 0;
    for (batch *one = of->first; one; before = one, one = one->next) {
        if (one != gone) continue;
        if (before) before->next = one->next;
        else of->first = one->next;
        if (of->last == one) of->last = before;
        return;
    }
}

/* Copy `n` ranges of `memory` to `out`, one after the other. */
EXPORTED void emlio_disk_pack(const uint8_t *memory, const int64_t *places, const int64_t *sizes, int64_t n, uint8_t *out) {
    for (int64_t i = 0; i < n;) {
        const int64_t from = places[i];
        int64_t bytes = 0;
        for (; i < n && places[i] == from + bytes; i++) bytes += sizes[i];
        memcpy(out, memory + from, (size_t)bytes);
        out += bytes;
    }
}

/* Wait until a batch is done, and for nothing else; then copy, and free the batch.

   Copies `n` ranges of `memory`, of which `places` and `sizes` tell, to `out`, one after the other; none if `out` is 0.

   Returns 0; the system's error or ENDED_EARLY, and then the number of the transfer in `failed`. That is STILL_BEGUN if the queue
   is being closed or cannot wait: the batch is then as before. */
EXPORTED int32_t emlio_disk_finish(void *disk, void *begun, const uint8_t *memory, const int64_t *places, const int64_t *sizes,
                                   int64_t n, uint8_t *out, int64_t *failed) {
    queue *of = disk;
    batch *wanted = begun;
    pthread_mutex_lock(&of->lock);
    int error = 0;
    for (;;) {
        take_ring(of);
        if (of->closing) error = ECANCELED;
        if (error || !wanted->left) break;
        give(of, wanted);
        if (!wanted->left) break;
        if (!of->in_flight) { /* the kernel takes none now */
            pause_briefly(of);
            continue;
        }
        if (of->waiting) {
            if (of->kind == URING) enter(of, 0);
            pthread_cond_wait(&of->moved, &of->lock);
            continue;
        }
        /* Some at a time: each wake-up costs as much as a few transfers. */
        int32_t least = of->depth / 4;
        if (least > wanted->left) least = (int32_t)wanted->left;
        if (least > of->in_flight) least = of->in_flight;
        error = take_done(of, least > 1 ? least : 1);
        if (of->starved) pause_briefly(of);
    }
    int32_t result = error;
    *failed = STILL_BEGUN;
    if (!error) {
        unlink_batch(of, wanted);
        result = wanted->error;
        *failed = wanted->failed;
    }
    pthread_mutex_unlock(&of->lock);
    if (error) return result;
    free(wanted);
    if (!result && out) emlio_disk_pack(memory, places, sizes, n, out);
    return result;
}

/* Give the kernel what was begun, and take what is done, without waiting. Under the lock. */
static void move_on(queue *of, batch *wanted) {
    if (of->closing) return;
    take_ring(of);
    give(of, wanted);
    if (of->kind == URING) enter(of, 0);
    else if (!of->waiting) take_done(of, 0);
}

/* Give the kernel what was begun, as far as the depth allows. Does not wait. */
EXPORTED void emlio_disk_push(void *disk) {
    queue *of = disk;
    pthread_mutex_lock(&of->lock);
    move_on(of, 0);
    pthread_mutex_unlock(&of->lock);
}

/* Drop a batch that is not wanted any more: what the kernel was not given is not read. Returns whether it is done, and gone; as
   long as it is not, its memory must stay, and this must be called again. Does not wait. */
EXPORTED int32_t emlio_disk_drop(void *disk, void *begun) {
    queue *of = disk;
    batch *dropped = begun;
    pthread_mutex_lock(&of->lock);
    if (!dropped->error) dropped->error = ECANCELED;
    move_on(of, dropped);
    const int gone = !dropped->left;
    if (gone) unlink_batch(of, dropped);
    pthread_mutex_unlock(&of->lock);
    if (gone) free(dropped);
    return gone;
}

/* The time for which threads have waited for the kernel, each moment counted once; with a wait that goes on. Never waits. */
EXPORTED int64_t emlio_disk_waited(void *disk) {
    queue *of = disk;
    const int64_t waited_ns = atomic_load_explicit(&of->waited_ns, memory_order_relaxed);
    const int64_t since = atomic_load_explicit(&of->waits_since, memory_order_relaxed);
    return waited_ns + (since ? now_ns() - since : 0);
}

/* End what threads wait for in `emlio_disk_finish`. */
EXPORTED void emlio_disk_stop(void *disk) {
    queue *of = disk;
    pthread_mutex_lock(&of->lock);
    of->closing = 1;
    pthread_cond_broadcast(&of->moved);
    pthread_mutex_unlock(&of->lock);
}

/* Wait until the kernel has no transfer of a stopped queue that no thread uses any more, and free it. Batches that were not
   finished are freed by `emlio_disk_free` after that. */
EXPORTED void emlio_disk_close(void *disk) {
    queue *of = disk;
    pthread_mutex_lock(&of->lock);
    int error = 0;
    while (of->in_flight && !error) error = take_done(of, 1);
    pthread_mutex_unlock(&of->lock);
    release(of);
}

/* Free a batch that was not finished, of a queue that is closed. */
EXPORTED void emlio_disk_free(void *begun) { free(begun); }
