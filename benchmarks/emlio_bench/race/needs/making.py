"""Making the missing environments and programs of a race, one after the other."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, TransportError
from emlio.units import format_duration, format_size
from emlio_bench.processes.child import Child
from emlio_bench.race.needs.environments import (
    GO_PROGRAMS,
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


def make_missing(
    names: Iterable[str],
    cache: Path,
    tell: Callable[[str], None],
    agree: Callable[[], bool] = lambda: True,
    *,
    advice: str = "",
) -> Mapping[str, str]:
    """Say what is missing and how large it is, make it, and return the failures with their reasons, by name.

    Args:
        names: names of the environments and programs that are needed.
        cache: folder of environments and programs.
        tell: called with progress messages.
        agree: asked, after the user was told, whether to begin.
        advice: the way to do without, in words.

    Raises:
        ConfigError: the answer was no.
    """
    missing = [name for name in sorted(set(names)) if not _is_made(name, cache)]
    if any(name not in GO_PROGRAMS and needs_lender(name) for name in missing) and not _is_made(LENDER, cache):
        missing = list(dict.fromkeys((LENDER, *missing)))  # other environments borrow packages from this one
    if not missing:
        return {}
    lent = LENT_MB if LENDER in missing else 0
    megabytes = sum(INSTALLED_MB[name] for name in missing) + lent
    least = len(missing) + megabytes // 2000
    tell(
        f"this installs into {cache}, once: {', '.join(missing)}. It takes about {format_size(megabytes * 1_000_000)} of disk "
        f"and {least} to {3 * least} minutes{advice and f'; {advice}'}"
    )
    if not agree():
        raise ConfigError(f"nothing was installed{advice and f'; {advice}'}")
    failed: dict[str, str] = {}
    for number, name in enumerate(missing, 1):
        tell(f"[{number}/{len(missing)}] making {name}")
        begun_ns = time.monotonic_ns()
        try:
            (make_program if name in GO_PROGRAMS else make_environment)(name, cache, _carry_out)
        except ConfigError as error:
            failed[name] = str(error)
            tell(f"{name} could not be made: {error}")
        else:
            tell(f"{name} is made after {format_duration(time.monotonic_ns() - begun_ns)}")
    return failed


def _is_made(name: str, cache: Path) -> bool:
    return (find_program if name in GO_PROGRAMS else environment_python)(name, cache) is not None


def _carry_out(name: str, command: Sequence[str]) -> None:
    try:
        with Child(name, command) as child:
            child.rest(_INSTALL_S)
    except TransportError as error:
        raise ConfigError(str(error)) from error
