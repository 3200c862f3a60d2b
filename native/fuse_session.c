/* The session of one mount: its beginning, its end, and the watch that lets no process wait for ever. */

#include "fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 4 /* of the watch, in the time that a READ may wait */
#define MOST_BETWEEN_NS 250000000

/* Open a session over a tree. `device`: what requests are read from, kept by the caller until the session is freed. `limit_ms`:
   how long a READ, or a store, may wait. Returns it, or 0 and the reason: EINVAL or EEXIST for a tree that cannot be. */
EXPORTED void *emlio_fuse_open(const entries *given, int32_t device, uint32_t uid, uint32_t gid, int64_t limit_ms,
                               int32_t *error) {
    session *of = calloc(1, sizeof *of);
    pthread_condattr_t monotonic;
    *error = ENOMEM;
    if (!of) return 0;
    *error = tree_make(&of->files, given, uid, gid);
    if (!*error && !(of->directory = strdup(""))) *error = ENOMEM;
    if (*error) {
        tree_free(&of->files);
        free(of);
        return 0;
    }
    of->device = device;
    of->limit_ns = limit_ms * 1000000;
    of->page = sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&of->lock, 0);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&of->missed, &monotonic);
    pthread_cond_init(&of->released, &monotonic);
    pthread_cond_init(&of->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return of;
}

/* Tell where the session is mounted, and the device number of its files. Before it is served. Returns 0 or ENOMEM. */
EXPORTED int32_t emlio_fuse_mounted(session *of, const char *directory, uint64_t device) {
    char *copy = strdup(directory);
    if (!copy) return ENOMEM;
    free(of->directory);
    of->directory = copy;
    of->mounted_device = device;
    return 0;
}

/* End the connection: every request that waits fails. Needs no lock, and no answer of this process. Returns whether it could. */
EXPORTED int32_t emlio_fuse_abort(session *of) {
    char path[64];
    int done = 0;
    atomic_store(&of->aborted, 1);
    snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", minor((dev_t)of->mounted_device));
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file >= 0) {
        done = write(file, "1", 1) == 1;
        close(file);
    }
    return done || (of->directory[0] && !umount2(of->directory, MNT_FORCE | MNT_DETACH));
}

/* Whether a thread has a signal that kills it. */
static int is_dying(uint32_t thread) {
    char path[64], line[128];
    unsigned long long pending = 0;
    snprintf(path, sizeof path, "/proc/%u/status", thread);
    FILE *file = fopen(path, "re");
    if (!file) return 1;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "SigPnd:", 7)) pending = strtoull(line + 7, 0, 16);
    fclose(file);
    return pending >> 8 & 1; /* SIGKILL: every signal that ends a process becomes one of each of its threads */
}

static int error_of_late(const session *of, const waiting *one, int64_t now) {
    if (now - one->since_ns > of->limit_ns) return EIO;
    return one->interrupted && is_dying(one->pid) ? EINTR : 0;
}

static int error_of_all(const session *of, const waiting *one, int64_t now) {
    (void)of, (void)one, (void)now;
    return EIO;
}

static int is_stuck(const session *of, int64_t now) {
    for (const notifying *call = of->notifying; call; call = call->next)
        if (now - atomic_load(&call->since_ns) > of->limit_ns) return 1;
    return 0;
}

/* Watch, until the session is closing: READs that wait for too long get EIO, those of threads that die EINTR; a store that
   takes too long waits for a page that no answer will unlock, so the connection is ended. Sleeps while there is nothing to watch. */
EXPORTED void emlio_fuse_watch(session *of) {
    const int64_t between = of->limit_ns / LOOKS < MOST_BETWEEN_NS ? of->limit_ns / LOOKS : MOST_BETWEEN_NS;
    pthread_mutex_lock(&of->lock);
    while (!of->closing) {
        if (!of->waiting_count && !of->notifying) {
            of->watch_sleeps = 1;
            pthread_cond_wait(&of->work, &of->lock);
            continue;
        }
        const int64_t until = now_ns() + between;
        const struct timespec then = {until / 1000000000, until % 1000000000};
        pthread_cond_timedwait(&of->work, &of->lock, &then);
        const int64_t now = now_ns();
        const int32_t before = of->waiting_count;
        if (before) answer_late(of, error_of_late, now);
        atomic_fetch_add(&of->counts[COUNT_LATE], before - of->waiting_count);
        if (is_stuck(of, now) && !atomic_load(&of->aborted)) {
            pthread_mutex_unlock(&of->lock);
            emlio_fuse_abort(of);
            pthread_mutex_lock(&of->lock);
        }
    }
    pthread_mutex_unlock(&of->lock);
}

/* Begin to close: READs that wait, and all that come, get EIO; calls that wait return. */
EXPORTED void emlio_fuse_stop(session *of) {
    pthread_mutex_lock(&of->lock);
    of->closing = 1;
    answer_late(of, error_of_all, 0);
    pthread_cond_broadcast(&of->missed);
    pthread_cond_broadcast(&of->work);
    pthread_mutex_unlock(&of->lock);
}

/* Free a session that no thread uses any more. */
EXPORTED void emlio_fuse_free(session *of) {
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
        for (holding *one = of->held[bucket], *next; one; one = next) next = one->next, free(one);
        for (waiting *one = of->asked[bucket], *next; one; one = next) {
            next = one->next;
            if (one->told) free(one); /* the others are in the queue */
        }
    }
    for (waiting *one = of->queue_first, *next; one; one = next) next = one->behind, free(one);
    pthread_cond_destroy(&of->missed);
    pthread_cond_destroy(&of->released);
    pthread_cond_destroy(&of->work);
    pthread_mutex_destroy(&of->lock);
    tree_free(&of->files);
    free(of->directory);
    free(of);
}

/* Copy what was counted: see COUNT_REQUESTS and the others; then whether the connection was ended here. */
EXPORTED void emlio_fuse_counts(session *of, int64_t *out) {
    for (int what = 0; what < COUNTS; what++) out[what] = atomic_load_explicit(&of->counts[what], memory_order_relaxed);
    out[COUNTS] = atomic_load(&of->aborted);
}
