"""A wall clock that jumps, for processes of our own.

Covers: a shared library, compiled here, that adds an offset to what the system says the time of day is; the file that holds
the offset. Does not cover: the monotonic clock, which never jumps.
"""

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["WallClock", "build_shim", "why_no_shim"]

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_ns;

__attribute__((constructor)) static void find_offset(void) {
    const char *path = getenv("CHAOS_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) offset_ns = page;
}

static void shift(struct timespec *now) {
    int64_t offset = offset_ns ? *offset_ns : 0;
    int64_t ns = now->tv_nsec + offset % 1000000000;
    now->tv_sec += offset / 1000000000;
    if (ns < 0) { ns += 1000000000; now->tv_sec -= 1; }
    if (ns >= 1000000000) { ns -= 1000000000; now->tv_sec += 1; }
    now->tv_nsec = ns;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real ? real(which, now) : (int)syscall(SYS_clock_gettime, which, now);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) shift(now);
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) { now->tv_sec = exact.tv_sec; now->tv_usec = exact.tv_nsec / 1000; }
    return 0;
}

time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}
"""


def why_no_shim() -> str | None:
    """Why the library cannot be compiled here, or None where it can."""
    return None if shutil.which("cc") is not None else "there is no C compiler (cc)"


def build_shim(folder: Path) -> Path:
    """Compile the library into a folder."""
    source, library = folder / "wall_clock.c", folder / "wall_clock.so"
    if not library.exists():
        source.write_text(_SOURCE, encoding="ascii")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


class WallClock:
    """The wall clock of those processes that are started with its environment."""

    def __init__(self, shim: Path, file: Path) -> None:
        self._shim = shim
        self._file = file
        self.jump(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for a process that shall have this clock."""
        return {"LD_PRELOAD": str(self._shim), "CHAOS_WALL_CLOCK": str(self._file)}

    def jump(self, offset_s: float) -> None:
        """From now on it is so much ahead of the machine's."""
        with self._file.open("r+b" if self._file.exists() else "wb", buffering=0) as file:
            file.write(struct.pack("<q", round(offset_s * 1e9)))
