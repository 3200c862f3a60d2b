"""Making all missing environments and programs of a race, in parallel where possible.

Covers: the list of missing ones, their order, progress messages, reasons of failures. Does not
cover: making one of them (emlio_bench.race.environments).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from emlio.errors import ConfigError, TransportError
from emlio.units import format_duration
from emlio_bench.processes.child import Child
from emlio_bench.race.environments import (
    INSTALL_S,
    LENDER,
    environment_python,
    find_program,
    make_environment,
    make_program,
    needs_lender,
)
from emlio_bench.race.system import System

__all__ = ["make_missing"]

_AT_ONCE: Final = 3
"""The number of parallel jobs.

Unpacking takes one core and waits for the network in between; a compilation takes the remaining
cores.
"""


def make_missing(systems: Iterable[System], cache: Path, tell: Callable[[str], None]) -> Mapping[str, str]:
    """Make what is missing, and return the failures with their reasons, by name.

    Args:
        systems: systems whose environments and programs are needed.
        cache: folder of environments and programs.
        tell: called with progress messages.
    """
    systems = tuple(systems)
    hands = _Hands()
    environments = {one.environment for one in systems if one.environment is not None}
    programs = {program for one in systems for program in one.programs}
    absent = sorted(name for name in environments if environment_python(name, cache) is None)
    first = [LENDER] if any(needs_lender(name) for name in absent) else []
    wanted: dict[str, Callable[[], object]] = {
        name: partial(make_program, name, cache, hands.carry_out)
        for name in sorted(programs)
        if find_program(name, cache) is None
    }
    failed: dict[str, str] = {}
    if first and environment_python(LENDER, cache) is None:
        # Other environments borrow packages from this one.
        failed |= _make({LENDER: partial(make_environment, LENDER, cache, hands.carry_out)} | wanted, hands, tell)
        wanted = {}
    others = [name for name in absent if name not in first]
    wanted |= {name: partial(make_environment, name, cache, hands.carry_out) for name in others}
    return failed | _make(wanted, hands, tell)


class _Hands:
    """Commands that run in several threads and can be ended together."""

    def __init__(self) -> None:
        self._children: set[Child] = set()
        self._dropped = False
        self._lock = Lock()

    def carry_out(self, name: str, command: Sequence[str]) -> None:
        """See emlio_bench.race.environments.carry_out."""
        try:
            with Child(name, command) as child:
                with self._lock:
                    if self._dropped:
                        raise ConfigError(f"{name} must not begin, the race was interrupted")
                    self._children.add(child)
                try:
                    child.rest(INSTALL_S)
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
    tell(f"making what other systems need, once: {', '.join(wanted)}")
    begun_ns = time.monotonic_ns()
    with ThreadPoolExecutor(_AT_ONCE, "emlio-bench-make") as pool:
        running = {pool.submit(make): name for name, make in wanted.items()}
        try:
            for left, done in enumerate(as_completed(running), 1 - len(running)):
                name, after = running[done], format_duration(time.monotonic_ns() - begun_ns)
                try:
                    done.result()
                except ConfigError as error:
                    failed[name] = str(error)
                    tell(f"{name} could not be made: {error}")
                else:
                    tell(f"{name} is made after {after}, {-left} left")
        except BaseException:
            hands.drop()  # otherwise the pool would wait for minutes
            raise
    return failed
