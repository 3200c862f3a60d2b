/* Transfers of a process that fail, come short, or are denied: calls of syscall(2) for io_uring and Linux AIO are changed on
   their way, as a page says that another process writes (disk_faults.py).

   A transfer that fails by io_uring is given to the kernel as one that does nothing and ends with that error; one that comes
   short is asked for in part. So the kernel completes both in its own time and order. */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NR_SETUP = 425, NR_ENTER = 426, NOP_WITH_RESULT = 1, DENY_URING = 1, DENY_AIO = 2, MOST_RINGS = 1024 };

static struct {
    _Atomic(int32_t) error, error_every, short_every, unit, denied, locked_bytes; /* written by the other process */
    _Atomic(int32_t) transfers, failed, shortened, refused;                       /* written here */
} *page;

static struct {
    uint8_t *map;
    struct io_uring_sqe *entries;
    struct io_uring_params told;
} rings[MOST_RINGS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long (*real)(long, ...);
static _Atomic(uint32_t) failures, shorts;

static int falls_on(_Atomic(uint32_t) *count, int32_t every) {
    return every && atomic_fetch_add(count, 1) % (uint32_t)every == 0;
}

__attribute__((constructor(101))) static void find_real(void) {
    real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
}

__attribute__((constructor(102))) static void begin(void) {
    const char *path = getenv("DISK_FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found == MAP_FAILED) return;
    page = found;
    if (!page->locked_bytes) return;
    struct rlimit limit = {(rlim_t)page->locked_bytes, (rlim_t)page->locked_bytes};
    struct __user_cap_header_struct who = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct may[2];
    if (setrlimit(RLIMIT_MEMLOCK, &limit) || real(SYS_capget, &who, may)) abort();
    may[0].effective &= ~(1u << CAP_IPC_LOCK); /* for which there is no limit */
    if (real(SYS_capset, &who, may)) abort();
}

static long refuse(void) {
    page->refused++;
    errno = EPERM;
    return -1;
}

/* Half of a length, as a multiple of what transfers past the page cache must be. */
static uint64_t shorter(uint64_t length) {
    const uint64_t unit = (uint64_t)page->unit;
    if (length <= unit || !falls_on(&shorts, page->short_every)) return length;
    page->shortened++;
    return length < 2 * unit ? unit : length / 2 / unit * unit;
}

static long open_ring(long entries, struct io_uring_params *told) {
    if (page->denied & DENY_URING) return refuse();
    const long ring = real(NR_SETUP, entries, told);
    if (ring < 0) {
        page->refused++; /* by the kernel, perhaps for the memory that may be locked */
        return ring;
    }
    if (ring >= MOST_RINGS) abort();
    const int access = PROT_READ | PROT_WRITE;
    const size_t bytes = told->sq_off.array + told->sq_entries * sizeof(uint32_t);
    pthread_mutex_lock(&lock);
    if (rings[ring].map) { /* of one that had this number and was closed */
        munmap(rings[ring].map, rings[ring].told.sq_off.array + rings[ring].told.sq_entries * sizeof(uint32_t));
        munmap(rings[ring].entries, rings[ring].told.sq_entries * sizeof(struct io_uring_sqe));
    }
    rings[ring].told = *told;
    rings[ring].map = mmap(0, bytes, access, MAP_SHARED, (int)ring, IORING_OFF_SQ_RING);
    rings[ring].entries =
        mmap(0, told->sq_entries * sizeof(struct io_uring_sqe), access, MAP_SHARED, (int)ring, IORING_OFF_SQES);
    if (rings[ring].map == MAP_FAILED || (void *)rings[ring].entries == MAP_FAILED) abort();
    pthread_mutex_unlock(&lock);
    return ring;
}

/* What the ring holds is changed and taken by the kernel before another thread can look at it; then this one waits. */
static long enter(long ring, long count, long least, long how) {
    pthread_mutex_lock(&lock);
    const uint8_t *map = rings[ring].map;
    const struct io_sqring_offsets at = rings[ring].told.sq_off;
    uint32_t head = atomic_load((_Atomic(uint32_t) *)(map + at.head));
    const uint32_t tail = atomic_load((_Atomic(uint32_t) *)(map + at.tail));
    const uint32_t mask = *(const uint32_t *)(map + at.ring_mask);
    for (long left = count; left && head != tail; left--, head++) {
        struct io_uring_sqe *entry = &rings[ring].entries[head & mask];
        if (entry->opcode != IORING_OP_READ && entry->opcode != IORING_OP_WRITE) continue;
        page->transfers++;
        entry->len = (uint32_t)shorter(entry->len);
        if (!falls_on(&failures, page->error_every)) continue;
        page->failed++;
        entry->opcode = IORING_OP_NOP;
        entry->rw_flags = NOP_WITH_RESULT;
        entry->len = (uint32_t)-page->error;
    }
    const long taken = count ? real(NR_ENTER, ring, count, 0l, 0l, 0l, 0l) : 0;
    pthread_mutex_unlock(&lock);
    if (taken < 0 || !least) return taken;
    const long waited = real(NR_ENTER, ring, 0l, least, how, 0l, 0l);
    return waited < 0 && !count ? waited : taken;
}

static long submit(long context, long count, struct iocb **entries) {
    if (page->error == EAGAIN && falls_on(&failures, page->error_every)) { /* this queue tells it at once */
        page->failed++;
        errno = EAGAIN;
        return -1;
    }
    page->transfers += (int32_t)count;
    for (long i = 0; i < count; i++) entries[i]->aio_nbytes = shorter(entries[i]->aio_nbytes);
    return real(SYS_io_submit, context, count, entries);
}

static long take_events(long context, long least, long most, struct io_event *events, long timeout) {
    const long got = real(SYS_io_getevents, context, least, most, events, timeout);
    for (long i = 0; i < got; i++) {
        if (page->error == EAGAIN || !falls_on(&failures, page->error_every)) continue;
        page->failed++;
        events[i].res = -page->error;
    }
    return got;
}

long syscall(long number, ...) {
    long with[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++) with[i] = va_arg(given, long);
    va_end(given);
    if (page && number == NR_SETUP) return open_ring(with[0], (struct io_uring_params *)with[1]);
    if (page && number == NR_ENTER) return enter(with[0], (uint32_t)with[1], (uint32_t)with[2], (uint32_t)with[3]);
    if (page && number == SYS_io_setup && page->denied & DENY_AIO) return refuse();
    if (page && number == SYS_io_submit) return submit(with[0], with[1], (struct iocb **)with[2]);
    if (page && number == SYS_io_getevents)
        return take_events(with[0], with[1], with[2], (struct io_event *)with[3], with[4]);
    return real(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}
