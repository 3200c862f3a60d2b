/* Copying scattered ranges of mapped files into one buffer.

   A file that became shorter, or a disk that fails, is a SIGBUS where its mapping is touched. While a thread copies here
   such a signal ends the copy, and the caller reads the range by a system call, which says what is wrong. Any other SIGBUS
   goes to the handler that was there before. The rest of a file's last page reads as zeros and raises no signal.

   Covers: the copy, the handler. Does not cover: which ranges, mapping files. */

#define _XOPEN_SOURCE 700

#include "emlio_native.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>

#define RUNS_AHEAD 6
#define LINE_BYTES 64u
#define LINES_AHEAD 4 /* the processor finds the lines after these itself */

#define GUARD_IS_GONE (-1)
#define IMPOSSIBLE (-2)

/* Static room, which each thread has from its start: in a handler none can be made. */
static __thread sigjmp_buf *volatile way_back __attribute__((tls_model("initial-exec")));

static struct sigaction before;
static int installed;

static void on_bus_error(int number, siginfo_t *info, void *context) {
    if (way_back) {
        sigjmp_buf *way = way_back;
        way_back = 0;
        siglongjmp(*way, 1);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (before.sa_handler == SIG_DFL || info->si_code > 0) {
        /* As if there were no handler: what touches the memory does so again and ends the process. One that was sent by
           a process is sent again. */
        struct sigaction usual;
        memset(&usual, 0, sizeof usual);
        usual.sa_handler = SIG_DFL;
        sigaction(number, &usual, 0);
        if (info->si_code <= 0) raise(number);
    }
}

static int holds(void) {
    struct sigaction now;
    return installed && !sigaction(SIGBUS, 0, &now) && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error;
}

/* Take SIGBUS for this process, once. Returns 0, or the system's error. Not for several threads at a time. */
EXPORTED int32_t emlio_guard_install(void) {
    if (installed) return 0;
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus_error;
    /* The jump out of the handler does not restore the mask, so the signal must not be in it. */
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, 0, &before)) return errno;
    if (sigaction(SIGBUS, &ours, 0)) return errno;
    installed = 1;
    return 0;
}

/* Whether SIGBUS is still this library's. */
EXPORTED int32_t emlio_guard_holds(void) { return holds(); }

/* Copy runs of mapped files to places in `out`.

   Of each run: the address of its file's mapping and the mapping's length, where the run starts in it, its size, its place.

   Returns how many were copied before the first that cannot be read: all of them if all is well. GUARD_IS_GONE if another
   handler takes SIGBUS now. IMPOSSIBLE if a run does not lie in its mapping or in `out`; some may then have been copied. */
EXPORTED int64_t emlio_gather(const int64_t *mappings, const int64_t *lengths, const int64_t *starts, const int64_t *sizes,
                              const int64_t *places, int64_t n, uint8_t *out, uint64_t out_bytes) {
    if (!holds()) return GUARD_IS_GONE;
    sigjmp_buf back;
    volatile int64_t run = 0; /* kept by the jump */
    if (sigsetjmp(back, 0)) return run;
    way_back = &back;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* nothing is touched before, or after the way is gone */
    for (; run < n; run++) {
        const int64_t at = run, start = starts[at], size = sizes[at], place = places[at];
        if (start < 0 || size < 0 || lengths[at] < 0 || start > lengths[at] || size > lengths[at] - start || place < 0 ||
            (uint64_t)place > out_bytes || (uint64_t)size > out_bytes - (uint64_t)place || !mappings[at]) {
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
            way_back = 0;
            return IMPOSSIBLE;
        }
        if (at + RUNS_AHEAD < n) {
            /* Not checked yet, but no address is forbidden to ask for. */
            uint64_t next = (uint64_t)mappings[at + RUNS_AHEAD] + (uint64_t)starts[at + RUNS_AHEAD];
            for (uint64_t line = 0; line < LINES_AHEAD; line++)
                __builtin_prefetch((const void *)(uintptr_t)(next + line * LINE_BYTES));
        }
        memcpy(out + place, (const uint8_t *)(uintptr_t)mappings[at] + start, (size_t)size);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    way_back = 0;
    return n;
}
