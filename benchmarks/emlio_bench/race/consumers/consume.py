"""The process that reads: consume.py READER ORDER, or consume.py convert READER ORDER.

It runs in the environment of the system it reads with, so it needs nothing but Python. READER names
a module in this folder with these functions:

* open_source(order): a context manager that makes the loader while the clock runs. It yields a
  function from the number of an epoch to an iterator over its batches. A batch is a sequence of
  records with the buffer protocol. If pictures are decoded, only the id of each, 8 bytes, is handed
  over; if a model is trained on them, the sequence also has the attribute `pictures`, and `labels` if
  the order says "train".
* prepared(order): optional, a context manager that is entered before the clock runs and yields the
  order, perhaps changed. It sets up what a host has anyway, such as a mounted file system.
* measure(order): replaces both; it yields begin, end and bytes of each epoch, of a tool without records.
* convert(records, order): makes the system's own format of the records, from an iterator over their
  bytes.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

__all__ = ["Overdue", "Reading", "Tree", "consume", "main", "records_of"]

_BLOCK_RECORDS = 640
_LOOK_S = 0.1
_SHARES_S = 1.0
_COST = 50
_GRACE_S = 10.0
_LATE_S = 2.0
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Say = Callable[[dict[str, Any]], None]
Train = Callable[[Any], float | None]
"""Takes a training step on a batch. Returns the loss before it; None where the loss is not looked at."""


class Tree:
    """This process and its descendants, sampled by a thread.

    Attributes:
        peak_rss_bytes: largest sum of resident memory so far.
        peak_pss_bytes: largest sum of memory so far, with shared pages divided among their
            processes.
    """

    def __init__(self) -> None:
        self.peak_rss_bytes = 0
        self.peak_pss_bytes = 0
        self._parent = os.getppid()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tree", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._ending.set()
        self._thread.join()
        self._look(shares=True)

    def cpu_ns(self) -> int:
        """Return the processor time of this process and its descendants.

        A descendant that has ended counts if its parent has waited for it.
        """
        spent = 0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            spent += round((usage.ru_utime + usage.ru_stime) * 1e9)
        for pid in self.descendants():
            with contextlib.suppress(OSError):
                fields = _stat_fields(pid)
                spent += sum(int(value) for value in fields[11:15]) * _TICK_NS
        return spent

    def descendants(self) -> list[int]:
        """Return the ids of living descendants."""
        found: list[int] = []
        waiting = [os.getpid()]
        while waiting:
            of = waiting.pop()
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{of}/task"):
                    with contextlib.suppress(OSError):
                        children = Path(f"/proc/{of}/task/{task}/children").read_text(encoding="ascii")
                        waiting += (new := [int(word) for word in children.split()])
                        found += new
        return found

    def kill(self) -> None:
        """Kill all descendants."""
        for pid in self.descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _watch(self) -> None:
        wait_s, shares_at = _LOOK_S, 0.0
        while not self._ending.wait(wait_s):
            begun = time.monotonic()
            shares = begun >= shares_at
            self._look(shares=shares)
            # Sampling dozens of large processes takes a while, above all their shared pages. This
            # keeps it at a few percent of a core.
            spent_s = time.monotonic() - begun
            if shares:
                shares_at = begun + max(_SHARES_S, _COST * spent_s)
            else:
                wait_s = max(_LOOK_S, _COST * spent_s)
            if os.getppid() != self._parent:  # the parent was killed and cannot end this process
                os.kill(os.getpid(), signal.SIGTERM)
                self._ending.wait(_GRACE_S)
                self.kill()
                os._exit(1)

    def _look(self, *, shares: bool) -> None:
        pids = [os.getpid(), *self.descendants()]
        resident = 0
        for pid in pids:
            with contextlib.suppress(OSError, IndexError):
                resident += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
        self.peak_rss_bytes = max(self.peak_rss_bytes, resident)
        if shares:
            self.peak_pss_bytes = max(self.peak_pss_bytes, sum(map(_pss_bytes, pids)))


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain any character."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _pss_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


class Reading:
    """One epoch so far, see Epoch in emlio_bench.race.records.order.

    One thread reads, another may look.
    """

    def __init__(self, number: int, begun_ns: int, record_bytes: int = 0) -> None:
        """Start an epoch; nothing has arrived yet.

        Args:
            number: number of the epoch.
            begun_ns: start of the epoch.
            record_bytes: size of a record whose bytes are not handed over; 0 if they are.
        """
        self._number = number
        self._begun_ns = self._asked_ns = self._ended_ns = begun_ns
        self._record_bytes = record_bytes
        self._first_ns = self._wait_ns = self._payload = self._batches = self._blocks = 0
        self._ids = array("Q")
        self._lengths: list[int] = []
        self._steps: list[tuple[int, int]] = []
        self._learned: list[tuple[float, int]] = []

    def read(self, batches: Iterator[Sequence[Any]], step_ns: int, limit_ns: int, train: Train | None = None) -> bool:
        """Read to the end of the epoch or past its limit; return whether it was cut.

        Args:
            batches: batches of the epoch.
            step_ns: pause after each batch.
            limit_ns: time limit; if the epoch exceeds it after a batch, it is cut.
            train: takes a real step on each batch, in place of the pause; None for a consumer without a
                model.
        """
        for batch in batches:
            self._take(batch)
            if step_ns or train is not None:
                self._step(batch, step_ns, train)
            self._ended_ns = self._asked_ns = time.monotonic_ns()
            if self._ended_ns - self._begun_ns > limit_ns:
                return True
        return False

    def _step(self, batch: Sequence[Any], step_ns: int, train: Train | None) -> None:
        begun_ns, loss = time.monotonic_ns(), None
        if train is None:
            time.sleep(step_ns / 1e9)
        else:
            loss = train(batch)
        ended_ns = time.monotonic_ns()
        self._steps.append((begun_ns, ended_ns))
        if loss is not None:
            self._learned.append((loss, ended_ns - self._begun_ns))

    def _take(self, batch: Sequence[Any]) -> None:
        come_ns = time.monotonic_ns()
        self._wait_ns += come_ns - self._asked_ns
        self._first_ns = self._first_ns or come_ns
        self._batches += 1
        before = len(self._ids)
        for record in batch:
            view = memoryview(record)
            self._ids.append(int.from_bytes(view[:8], "little"))
            self._payload += self._record_bytes or view.nbytes
        self._lengths.append(len(self._ids) - before)
        self._blocks += len({one // _BLOCK_RECORDS for one in self._ids[before:]})

    def said(self, *, cut: bool, ended_ns: int | None = None, in_order: bool = False) -> dict[str, Any]:
        """Return the report of the epoch.

        Args:
            cut: whether the epoch was cut.
            ended_ns: time of giving up, if no batch ended the epoch.
            in_order: whether to report each id, in the order of handing out, and the length of each batch.
        """
        lengths = list(self._lengths)
        handed_out = self._ids[: sum(lengths)].tolist() if in_order else []
        ids = array("Q", sorted(self._ids))
        ended_ns = ended_ns or self._ended_ns
        learned = list(self._learned)
        return {
            "epoch": self._number,
            "begun_ns": self._begun_ns,
            "first_batch_ns": self._first_ns or ended_ns,
            "ended_ns": ended_ns,
            "records": len(ids),
            "payload_bytes": self._payload,
            "wait_ns": self._wait_ns + max(ended_ns - self._ended_ns, 0),
            "batches": self._batches,
            "blocks": self._blocks / self._batches if self._batches else 0.0,
            "distinct": len(set(ids)),
            "cut": cut,
            "ids_crc": zlib.crc32(ids.tobytes()),
            "steps": list(self._steps),
            "losses": [loss for loss, _ in learned],
            "learned_ns": [after_ns for _, after_ns in learned],
            "ids": handed_out,
            "batch_records": lengths if in_order else [],
        }


class Overdue:
    """A thread that gives up an epoch if the next batch does not arrive.

    It reports what has arrived and ends the process, whatever the process waits for. The limit is
    also checked after each batch, where most epochs are cut.
    """

    def __init__(self, limit_ns: int, give_up: Callable[[Reading], None]) -> None:
        """Create the object; it watches nothing yet.

        Args:
            limit_ns: time limit of an epoch.
            give_up: makes the last report of this process and ends it.
        """
        self._wait_s = limit_ns / 1e9 + _LATE_S
        self._give_up = give_up
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def watching(self, reading: Reading) -> Generator[None, None, None]:
        """Watch an epoch while the block lasts; both begin together."""
        over = threading.Event()

        def watch() -> None:
            if not over.wait(self._wait_s):
                with self._lock:
                    if not over.is_set():
                        self._give_up(reading)

        watcher = threading.Thread(target=watch, name="overdue", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            with self._lock:
                over.set()
            watcher.join()


def consume(reader: ModuleType, order: dict[str, Any], say: Say, tree: Tree) -> None:
    """Read all epochs of an order, and report them."""
    with contextlib.ExitStack() as before:
        if hasattr(reader, "prepared"):
            order = before.enter_context(reader.prepared(order))
        train = _training_of(order)
        cpu_ns = tree.cpu_ns()

        def give_up(reading: Reading) -> None:
            say(reading.said(cut=True, ended_ns=time.monotonic_ns(), in_order=_in_order(order)))
            say(_finished(order, tree, tree.cpu_ns() - cpu_ns))
            tree.kill()
            os._exit(0)

        if hasattr(reader, "measure"):
            for number, (begun_ns, ended_ns, payload_bytes) in enumerate(reader.measure(order)):
                said = Reading(number, begun_ns).said(cut=False, ended_ns=ended_ns)
                say({**said, "first_batch_ns": begun_ns, "payload_bytes": payload_bytes})
        else:
            _consume_all(reader, order, say, Overdue(order["limit_ns"], give_up), train)
        cpu_ns = tree.cpu_ns() - cpu_ns
    tree.close()
    say(_finished(order, tree, cpu_ns))


def _training_of(order: dict[str, Any]) -> Train | None:
    """Return the training that the order asks for, or None."""
    options = order["options"]
    module: Any
    if order.get("train"):
        module = importlib.import_module("learner")
        learner: Train = module.Learner(order["seed"], order["batch"])
        return learner
    if "model" in options:
        module = importlib.import_module("train_step")
        step: Train = module.TrainStep(options["model"], options["device"], order["batch"])
        return step
    return None


def _consume_all(reader: ModuleType, order: dict[str, Any], say: Say, overdue: Overdue, train: Train | None) -> None:
    size = order["corpus"]["record_bytes"] if order["decode"] else 0
    with contextlib.ExitStack() as source:
        batches = None
        for number in range(order["epochs"]):
            # The first epoch begins before the loader's constructor.
            reading = Reading(number, time.monotonic_ns(), size)
            with overdue.watching(reading):
                if batches is None:
                    batches = source.enter_context(reader.open_source(order))
                cut = reading.read(batches(number), order["step_ns"], order["limit_ns"], train)
            say(reading.said(cut=cut, in_order=_in_order(order)))
            if cut:
                break


def _in_order(order: dict[str, Any]) -> bool:
    return "in_order" in order["options"]


def _finished(order: dict[str, Any], tree: Tree, cpu_ns: int) -> dict[str, Any]:
    return {
        "cpu_ns": cpu_ns,
        "peak_rss_bytes": tree.peak_rss_bytes,
        "peak_pss_bytes": tree.peak_pss_bytes,
        "cache_bytes": _size_bytes(Path(order["folder"])),
    }


def _size_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def records_of(paths: Sequence[str]) -> Iterator[bytes]:
    """Yield the records of TFRecord files, without checking them."""
    for path in paths:
        with open(path, "rb") as file:
            while head := file.read(12):
                yield file.read(int.from_bytes(head[:8], "little"))
                file.seek(4, os.SEEK_CUR)


def _end_at_last(tree: Tree, status: int) -> None:
    time.sleep(_GRACE_S)
    tree.kill()
    os._exit(status)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(1)


def main(words: Sequence[str]) -> None:
    """Read or convert, according to the arguments."""
    signal.signal(signal.SIGTERM, _end)
    # Output of the systems must not mix with the reports, so it goes to standard error.
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        said.write(json.dumps(message) + "\n")
        said.flush()

    convert = words[0] == "convert"
    order = json.loads(words[-1])
    reader = importlib.import_module(words[-2])
    if convert:
        reader.convert(records_of(order["shards"]), order)
        return
    tree = Tree()
    status = 1
    try:
        consume(reader, order, say, tree)
        status = 0
    finally:
        # Exit handlers of the systems remove what they left on this host, but some are known to
        # hang. All reports have been made by now.
        threading.Thread(target=_end_at_last, args=(tree, status), name="end", daemon=True).start()
        signal.alarm(2 * round(_GRACE_S))


if __name__ == "__main__":
    main(sys.argv[1:])
