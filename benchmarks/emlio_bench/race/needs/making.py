"""Making all missing environments and programs of a race, in parallel where possible."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from emlio.errors import ConfigError, TransportError
from emlio.units import format_duration, format_size
from emlio_bench.processes.child import Child
from emlio_bench.race.needs.environments import (
    INSTALLED_MB,
    LENDER,
    LENT_MB,
    environment_python,
    find_program,
    make_environment,
    make_program,
    needs_lender,
)

__all__ = ["make_missing"]

_INSTALL_S: Final = 3600.0
"""The time limit of one command."""

_TOLD_S: Final = 20.0
"""The most time between two messages of progress."""

_AT_ONCE: Final = 3
"""The number of parallel jobs.

Unpacking takes one core and waits for the network in between; a compilation takes the remaining
cores.
"""


def make_missing(
    environments: Collection[str],
    programs: Collection[str],
    cache: Path,
    tell: Callable[[str], None],
    agree: Callable[[], bool] = lambda: True,
) -> Mapping[str, str]:
    """Say what is missing and how large it is, make it, and return the failures with their reasons, by name.

    Args:
        environments: names of the environments that are needed.
        programs: names of the programs that are needed.
        cache: folder of environments and programs.
        tell: called with progress messages.
        agree: asked, after the user was told, whether to begin.

    Raises:
        ConfigError: the answer was no.
    """
    hands = _Hands()
    absent = sorted(name for name in set(environments) if environment_python(name, cache) is None)
    first = [LENDER] if any(needs_lender(name) for name in absent) else []
    wanted: dict[str, Callable[[], object]] = {
        name: partial(make_program, name, cache, hands.carry_out)
        for name in sorted(set(programs))
        if find_program(name, cache) is None
    }
    failed: dict[str, str] = {}
    lent = first if environment_python(LENDER, cache) is None else []
    missing = list(dict.fromkeys([*lent, *absent, *wanted]))
    if missing:
        megabytes = sum(INSTALLED_MB[name] for name in missing) + (LENT_MB if lent else 0)
        tell(
            f"this installs into {cache}, once: {', '.join(missing)}. It takes about {format_size(megabytes * 1_000_000)} of "
            f"disk and {_least_minutes(megabytes)} to {3 * _least_minutes(megabytes)} minutes; --no-install leaves these "
            "systems out"
        )
        if not agree():
            raise ConfigError("nothing was installed; --no-install runs without these systems")
    if first and environment_python(LENDER, cache) is None:
        # Other environments borrow packages from this one.
        failed |= _make({LENDER: partial(make_environment, LENDER, cache, hands.carry_out)} | wanted, hands, tell)
        wanted = {}
    others = [name for name in absent if name not in first]
    wanted |= {name: partial(make_environment, name, cache, hands.carry_out) for name in others}
    return failed | _make(wanted, hands, tell)


def _least_minutes(megabytes: int) -> int:
    return 1 + megabytes // 2000


class _Hands:
    """Commands that run in several threads and can be ended together."""

    def __init__(self) -> None:
        self._children: set[Child] = set()
        self._dropped = False
        self._lock = Lock()

    def carry_out(self, name: str, command: Sequence[str]) -> None:
        """See emlio_bench.race.needs.environments.CarryOut."""
        try:
            with Child(name, command) as child:
                with self._lock:
                    if self._dropped:
                        raise ConfigError(f"{name} must not begin, the race was interrupted")
                    self._children.add(child)
                try:
                    child.rest(_INSTALL_S)
                finally:
                    with self._lock:
                        self._children.discard(child)
        except TransportError as error:
            raise ConfigError(str(error)) from error

    def drop(self) -> None:
        """End all running commands, and start no more."""
        with self._lock:
            self._dropped = True
            running = tuple(self._children)
        for child in running:
            child.end()


def _make(wanted: Mapping[str, Callable[[], object]], hands: _Hands, tell: Callable[[str], None]) -> dict[str, str]:
    failed: dict[str, str] = {}
    if not wanted:
        return failed
    begun_ns = time.monotonic_ns()
    with ThreadPoolExecutor(_AT_ONCE, "emlio-bench-make") as pool:
        running = {pool.submit(make): name for name, make in wanted.items()}
        try:
            while running:
                ended, _ = wait(running, timeout=_TOLD_S, return_when=FIRST_COMPLETED)
                after = format_duration(time.monotonic_ns() - begun_ns)
                if not ended:
                    tell(f"installing for {after}: {', '.join(running.values())} left")
                for done in ended:
                    name = running.pop(done)
                    try:
                        done.result()
                    except ConfigError as error:
                        failed[name] = str(error)
                        tell(f"{name} could not be made: {error}")
                    else:
                        tell(f"{name} is made after {after}, {len(running)} left")
        except BaseException:
            hands.drop()  # otherwise the pool would wait for minutes
            raise
    return failed
