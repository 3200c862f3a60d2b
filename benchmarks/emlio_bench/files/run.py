"""`emlio-bench files`: small files read by programs that know nothing of EMLIO, beside NFS and sshfs."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from emlio.errors import ConfigError, TransportError
from emlio.progress import Progress
from emlio.settings import option
from emlio_bench.files.report import draw_files, files_figures, files_parts, scenario_name, values_of
from emlio_bench.files.samples import COMPILED, EPOCHS, SUBJECTS, Place, Way, compiled, sample
from emlio_bench.files.servers import serving, why_not
from emlio_bench.harness.command import Command, CommonSettings, World
from emlio_bench.harness.data import data_root, make_folder, memory_root
from emlio_bench.harness.options import count, duration, durations, names
from emlio_bench.harness.results import Results, Run, results_of, rtt_text
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.scenario import parse_sizes
from emlio_bench.link.choice import open_link
from emlio_bench.link.contract import LinkSpec
from emlio_bench.race.needs.environments import cache_folder

__all__ = ["COMMAND", "FilesSettings", "make_files", "run_files"]

_PROCESSES: Final = 8
_READERS: Final = {
    name: (program, processes)
    for name, program, processes in (
        ("c", "c", 1),
        ("python", "python", 1),
        (f"c-x{_PROCESSES}", "c", _PROCESSES),
        (f"python-x{_PROCESSES}", "python", _PROCESSES),
    )
}
_MOST_BYTES: Final = 400_000_000
"""Of all files of one size."""
_PAGE_BYTES: Final = 4096
_IN_FOLDER: Final = 1000
_QUICK_FILES: Final = 320
_QUICK_NS: Final = 100_000_000
_FILE_NS: Final = 300_000
"""About the time of a file with round trips besides these."""
_LEAST_FILES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings(CommonSettings):
    """`emlio-bench files`. Without `--data` the files lie in memory."""

    rtts: tuple[int, ...] = durations("0.1ms,30ms", "round trips of the links")
    sizes: tuple[int, ...] = option(
        (1_000, 100_000), "sizes of files (default 1kB,100kB)", parse=parse_sizes, metavar="SIZE,..."
    )
    subjects: tuple[str, ...] = names(tuple(SUBJECTS), "who is measured")
    readers: tuple[str, ...] = names(tuple(_READERS), "unmodified programs that read, one by one or in eight processes")
    files: int = count(20_000, "files of each size, but at most 400 MB")
    slow: int = duration(
        "1.5s", "time of an epoch with round trips for each file, which reads as few files as that takes"
    )
    repeats: int = count(6, "rounds; one sample of each subject and reader in each")


def run_files(settings: FilesSettings, world: World) -> Results:
    """Measure all subjects with all readers in all scenarios, in turns."""
    cache = cache_folder(None, world.environment)
    missing = {name: reason for name in settings.subjects if (reason := why_not(name, cache)) is not None}
    ways = [way for way in _ways(settings) if way.subject not in missing]
    if not ways:
        raise ConfigError(f"no subject can take part: {'; '.join(missing.values())}")
    for name, reason in missing.items():
        world.tell(f"{name} does not take part: it {reason}")
    runs: list[Run] = []
    with TemporaryDirectory(prefix="emlio-bench-files-") as scratch:
        programs = {name: compiled(name, Path(scratch)) for name in {_program(way) for way in ways} & set(COMPILED)}
        for size_bytes, rtt_ns in product(settings.sizes, settings.rtts):
            files = min(_QUICK_FILES if settings.quick else settings.files, max(_MOST_BYTES // size_bytes, 1))
            scenario = scenario_name(rtt_ns, size_bytes)
            room = 2 * files * max(size_bytes, _PAGE_BYTES)
            with (
                data_root(settings.data) if settings.data else memory_root("files", room) as root,
                open_link(LinkSpec(rtt_ns=rtt_ns)) as link,
                serving(folder := make_files(root, size_bytes, files), link, cache, _servers(ways)) as servers,
                Progress(scenario, settings.repeats * len(ways)) as bar,
            ):
                place = Place(
                    folder=folder,
                    size_bytes=size_bytes,
                    link=link,
                    servers=servers,
                    programs=programs,
                    scratch=Path(scratch),
                )
                for number, (turn, way) in _turns(ways, settings.repeats):
                    count = _count(way, files, rtt_ns, _QUICK_NS if settings.quick else settings.slow)
                    runs += _runs(scenario, way, place, _lists(count, number), number, turn)
                    bar.add(1)
    told = {
        "sizes": settings.sizes,
        "round trips": tuple(map(rtt_text, settings.rtts)),
        "files": settings.files,
        "left out": "; ".join(f"{name} {reason}" for name, reason in missing.items()),
    }
    return results_of("files", told, files_figures(runs, bounded=not settings.quick), runs)


def _ways(settings: FilesSettings) -> Iterator[Way]:
    for name in settings.subjects:
        if not SUBJECTS[name].programs:
            yield Way(subject=name)
        for program, processes in map(_READERS.__getitem__, settings.readers):
            if program in SUBJECTS[name].programs:
                yield Way(subject=name, program=program, processes=processes)


def _program(way: Way) -> str:
    return "nfs" if way.subject == "nfs" else way.program


def _servers(ways: Sequence[Way]) -> frozenset[str]:
    return frozenset(SUBJECTS[way.subject].server for way in ways) - {""}


def _turns(ways: Sequence[Way], rounds: int) -> Iterator[tuple[int, tuple[int, Way]]]:
    for number in range(rounds):
        for turn in enumerate(rotated(ways, number)):
            yield number, turn


def _count(way: Way, files: int, rtt_ns: int, slow_ns: int) -> int:
    """Return how many files a sample reads: all that come ahead, and of others as many as take the time of a slow one."""
    trips = SUBJECTS[way.subject].trips
    if not trips:
        return files
    return min(max(slow_ns // (trips * rtt_ns + _FILE_NS), _LEAST_FILES) * way.processes, files)


def _lists(count: int, number: int) -> list[list[str]]:
    """Return the names of each epoch: the first files of the tree, each time in another order."""
    found: list[list[str]] = []
    for epoch in EPOCHS:
        chosen = [_name(file) for file in range(count)]
        random.Random(f"{epoch} {number}").shuffle(chosen)
        found.append(chosen)
    return found


def _name(file: int) -> str:
    """Return a file's name; its first bytes are the number in it."""
    return f"{file // _IN_FOLDER:04}/{file:08}.bin"


def make_files(root: Path, size_bytes: int, files: int) -> Path:
    """Make the files below `root`, or find them there from an earlier run; return their folder."""
    folder = root / f"files-{size_bytes}-x{files}"
    if folder.is_dir():
        return folder
    part = folder.with_name(f"{folder.name}.unfinished")
    rest = random.Random(size_bytes).randbytes(size_bytes - 8)
    for file in range(files):
        path = part / _name(file)
        if file % _IN_FOLDER == 0:
            make_folder(path.parent)
        path.write_bytes(file.to_bytes(8, "little") + rest)
    part.rename(folder)
    return folder


def _runs(
    scenario: str, way: Way, place: Place, lists: Sequence[Sequence[str]], number: int, turn: int
) -> Iterator[Run]:
    """Yield a run for each epoch of a sample, or the one that failed."""
    made = partial(Run, scenario=scenario, subject=way.name, round=number, place=turn)
    words = {"order": SUBJECTS[way.subject].order}
    try:
        epochs = sample(way, place, lists)
    except TransportError as error:
        yield made(failure=str(error))
        return
    for name, epoch in zip(EPOCHS, epochs, strict=True):
        yield made(setting=name, values=values_of(epoch), words=words)


COMMAND: Final = Command(
    name="files",
    settings=FilesSettings,
    run=run_files,
    text="small files read by unmodified programs, with EMLIO's mount, beside NFS, sshfs and the loader",
    parts=files_parts,
    draw=draw_files,
)
