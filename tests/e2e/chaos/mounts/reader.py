"""A program that reads a mount as it is told, and compares every byte with the same file on the disk.

Prints lines of JSON: what went wrong, and a summary at its end, which comes once its folder has a file `stop`.
"""

import ctypes
import errno
import json
import mmap
import os
import random
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

PAGE = mmap.PAGESIZE
CHUNK = 1 << 17
CACHESTAT = 451
LARGE = 1 << 20


def said(**what: Any) -> None:
    """Print a line."""
    with LOCK:
        sys.stdout.write(json.dumps({"at": time.monotonic(), **what}) + "\n")
        sys.stdout.flush()


LOCK = threading.Lock()


def read(descriptor: int, offset: int, size: int) -> bytes:
    """Read as most programs do."""
    return os.pread(descriptor, size, offset)


def directly(descriptor: int, offset: int, size: int) -> bytes:
    """Read past the page cache."""
    begin = offset // PAGE * PAGE
    with mmap.mmap(-1, (size // PAGE + 2) * PAGE) as room:
        count = os.preadv(descriptor, [room], begin)
        return room[:count][offset - begin :][:size]


def mapped(descriptor: int, offset: int, size: int) -> bytes:
    """Read a mapping."""
    begin, end = offset // PAGE * PAGE, min(offset + size, os.fstat(descriptor).st_size)
    if end <= offset:
        return b""
    with mmap.mmap(descriptor, end - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin) as view:
        return view[offset - begin :]


WAYS: dict[str, Callable[[int, int, int], bytes]] = {
    "read": read,
    "parts": read,
    "direct": directly,
    "mmap": mapped,
    "mapped parts": mapped,
}


class Reader:
    """See the module."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """See the class."""
        self.plan = plan
        self.mount, self.truth, self.stop = (plan[name].encode() for name in ("mount", "truth", "stop"))
        self.chance = random.Random(plan["seed"])
        self.files = self.bytes = self.errors = 0
        self.longest_s = 0.0
        self.names = [name for name, size in listed(self.truth) if fits(plan["files"], size)]

    @property
    def is_over(self) -> bool:
        """True once it was told to stop."""
        return os.path.exists(self.stop)

    def run(self) -> None:
        """Read until the end."""
        rounds = self.plan.get("rounds", 1 << 30)
        while not self.is_over and rounds:
            rounds -= 1
            if self.plan["way"] == "census":
                self.count()
            elif self.plan["way"] == "walk":
                self.timed("", self.walk)
            else:
                self.round()
        said(
            end=True,
            files=self.files,
            bytes=self.bytes,
            errors=self.errors,
            longest_s=round(self.longest_s, 3),
        )

    def round(self) -> None:
        """Read all files once."""
        order = list(self.names)
        if self.plan["order"] == "shuffled":
            self.chance.shuffle(order)
        order = order[: self.plan.get("most", len(order))]
        hints = self.plan["hints"]
        told = {"wrong": self.chance.sample(order, len(order)), "twice": order * 2, "none": []}.get(hints, order)
        late = threading.Timer(0.1, self.tell, [told])
        if hints == "late":
            late.start()
        elif told:
            self.tell(told)
        names, lock = iter(order), threading.Lock()
        threads = [threading.Thread(target=self.take, args=(names, lock)) for _ in range(self.plan["threads"] - 1)]
        for thread in threads:
            thread.start()
        self.take(names, lock)
        for thread in threads:
            thread.join()
        late.cancel()

    def tell(self, names: Sequence[bytes]) -> None:
        """Tell the mount an order."""
        from emlio.files import hint

        self.timed("hint", lambda: hint(self.mount + b"/" + name for name in names) and None)

    def take(self, names: Iterator[bytes], lock: Any) -> None:
        """Read files until there are no more, beside other threads."""
        while not self.is_over:
            with lock:
                name = next(names, None)
            if name is None:
                return
            self.timed(name, lambda name=name: self.compare(name))
            if self.plan["pause_us"]:
                time.sleep(self.plan["pause_us"] / 1e6)

    def timed(self, name: bytes | str, work: Callable[[], object]) -> None:
        """Do something that may fail."""
        begin = time.monotonic()
        try:
            work()
        except OSError as error:
            self.errors += 1
            said(errno=error.errno or errno.EIO, name=os.fsdecode(name), took_s=round(time.monotonic() - begin, 3))
            time.sleep(0.02)

    def called(self, work: Callable[[], Any]) -> Any:
        """Return what a call returns, and look how long it takes."""
        begin = time.monotonic()
        try:
            return work()
        finally:
            took = time.monotonic() - begin
            self.longest_s = max(self.longest_s, took)
            if took > self.plan["limit_s"]:
                said(slow_s=round(took, 3))

    def compare(self, name: bytes) -> None:
        """Compare a file, or parts of it."""
        flags = os.O_RDONLY | (os.O_DIRECT if self.plan["way"] == "direct" else 0)
        with open(self.truth + b"/" + name, "rb", buffering=0) as true:
            descriptor = self.called(lambda: os.open(self.mount + b"/" + name, flags))
            try:
                self.compare_opened(name, descriptor, true.fileno())
            finally:
                os.close(descriptor)
        self.files += 1

    def compare_opened(self, name: bytes, descriptor: int, true: int) -> None:
        """Compare the bytes of two open files."""
        size = os.fstat(true).st_size
        if os.fstat(descriptor).st_size != size:
            said(wrong=os.fsdecode(name), offset=-1)
        places = [(offset, CHUNK) for offset in range(0, size + 1, CHUNK)]
        if self.plan["way"].endswith("parts"):
            places = [
                (self.chance.randrange(size + 1), self.chance.choice([1, 100, PAGE, 50_000, 1_000_000]))
                for _ in range(20)
            ]
        for offset, count in places:
            found = self.whole(descriptor, offset, min(count, size - offset))
            self.bytes += len(found)
            if found != os.pread(true, count, offset):
                said(wrong=os.fsdecode(name), offset=offset, found=len(found))
            if self.is_over:
                return

    def whole(self, descriptor: int, offset: int, count: int) -> bytes:
        """Read as many bytes; a read may end before one that fails, which the next one tells."""
        found = b""
        while len(found) < count or not count:
            begin, left = offset + len(found), count - len(found)
            more = self.called(lambda: WAYS[self.plan["way"]](descriptor, begin, max(left, 1)))  # noqa: B023
            if not more:
                break
            found += more
        return found

    def walk(self) -> None:
        """Compare names, sizes and times."""
        waiting = [b""]
        while waiting and not self.is_over:
            folder = waiting.pop()
            names = self.called(lambda: sorted(os.listdir(self.mount + folder)))  # noqa: B023
            if not names and not folder:
                raise OSError(errno.ENOENT, "nothing is mounted")
            if names != sorted(os.listdir(self.truth + folder)):
                said(wrong=os.fsdecode(folder), offset=-2)
            for name in names:
                path = folder + b"/" + name
                found, true = self.called(lambda: os.lstat(self.mount + path)), os.lstat(self.truth + path)  # noqa: B023
                if stat.S_ISDIR(found.st_mode):
                    waiting.append(path)
                elif (found.st_size, found.st_mtime_ns) != (true.st_size, true.st_mtime_ns):
                    said(wrong=os.fsdecode(path), offset=-3)
                self.files += 1

    def count(self) -> None:
        """Say how many bytes of all files are in the page cache.

        They move on meanwhile: a count that moves with them finds too many, and one in the other direction too few.
        """
        try:
            found = [self.cached_bytes(names) for names in (self.names, self.names[::-1])]
        except OSError:
            return
        said(cached_bytes=min(found))
        time.sleep(0.2)

    def cached_bytes(self, names: Sequence[bytes]) -> int:
        """Return how many bytes of files are in the page cache, all of which must open."""
        libc, total = ctypes.CDLL(None), 0
        whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
        for name in names:
            descriptor = os.open(self.mount + b"/" + name, os.O_RDONLY)
            if not libc.syscall(CACHESTAT, descriptor, whole, found, 0):
                total += found[0] * PAGE
            os.close(descriptor)
        return total


def listed(root: bytes) -> list[tuple[bytes, int]]:
    """Return the files below a folder and their sizes, in the order of a tree: folder by folder."""
    folders, found = [b""], list[tuple[bytes, int]]()
    for folder in folders:  # which grows
        for entry in sorted(os.scandir(os.path.join(root, folder)), key=lambda entry: entry.name):
            path = os.path.join(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_file(follow_symlinks=False):
                found.append((path, entry.stat().st_size))
    return found


def fits(wanted: str, size: int) -> bool:
    """Return True if a file is one of those wanted."""
    return wanted == "all" or (size >= LARGE) == (wanted == "large")


if __name__ == "__main__":
    Reader(json.loads(sys.argv[1])).run()
