"""The report of `emlio-bench files`: ratios within rounds, each with what was known of the order; what was aimed at; bars."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from emlio.units import format_size
from emlio_bench.files.samples import EPOCHS, SUBJECTS, Epoch
from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.report import Part, Table, result_parts
from emlio_bench.harness.results import Figure, Results, Run, figure, neighbours, ratio_values, rtt_text
from emlio_bench.harness.spread import Spread, Value, spread, text

__all__ = ["draw_files", "files_figures", "files_parts", "scenario_name", "values_of"]

_SPEED: Final = "files/s"
_TOLD: Final = "files/s, order told"
_RATE: Final = "MB/s"
_READER: Final = "reader, us/file"
_AGENT: Final = "agent, us/file"
_SERVER: Final = "server, us/file"
_OTHERS: Final = ("nfs", "sshfs", "loader")
_FIRST, _SECOND = EPOCHS

_READING: Final = (
    "Median (least..most) over rounds, in which all take turns; ratios are of samples in the same round. The first epoch of a "
    "fresh mount looks up each name. 'order told' counts from before the hint, else an epoch counts from the first open to the "
    "last close. CPU is of the first epoch: of the program that reads, of what serves its mount (EMLIO's agent; sshfs and ssh), "
    "and of the server. NFS is libnfs in the reader's process, without a kernel's cache; it and EMLIO have no cipher, sshfs has. "
    "Ratios to NFS and sshfs are of the first epoch and to those read by the same number of processes, for libraries by one; to "
    "the loader of the second."
)


def scenario_name(rtt_ns: int, size_bytes: int) -> str:
    """Return the name of a scenario."""
    return f"{rtt_text(rtt_ns)}, {format_size(size_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aim:
    """A ratio, or a quantity without `to`, with its bound at the named scenario.

    Attributes:
        at: scenario.
        of: subject and reader.
        to: subject and reader that it is divided by; empty for none.
        what: name of the quantity.
        quantity: quantity of a run.
        epoch: epoch.
        at_least: bound of the median.
        at_most: likewise.
    """

    at: str
    of: str
    to: str = ""
    what: str = _SPEED
    quantity: Callable[[Run], float] = lambda run: run.value(_SPEED)
    epoch: str = _FIRST
    at_least: float | None = None
    at_most: float | None = None

    def figure(self, runs: Sequence[Run], *, bounded: bool) -> Figure | None:
        """Return it from these runs; None if one of them is missing."""
        own = [run for run in runs if run.scenario == self.at and run.setting == self.epoch]
        if self.to:
            pairs = neighbours(own, self.of, self.to)
            values = ratio_values(*([self.quantity(pair[side]) for pair in pairs] for side in (0, 1)))
        else:
            values = tuple(self.quantity(run) for run in own if run.subject == self.of)
        if not values:
            return None
        name = f"{self.at}: {self.of}{f' / {self.to}' if self.to else ''}, {self.what}, {self.epoch} epoch, {_order(self.of)}"
        bounds = (self.at_least, self.at_most) if bounded else (None, None)
        return figure(name, "" if self.to else _SPEED, values, at_least=bounds[0], at_most=bounds[1])


def _client(run: Run) -> float:
    return run.value(_READER) + run.value(_AGENT)


def _aims() -> Iterator[_Aim]:
    near, far, large = scenario_name(100_000, 1000), scenario_name(30_000_000, 1000), scenario_name(30_000_000, 100_000)
    for reader, least in (("c", 9.5), ("c-x8", 8)):
        yield _Aim(at=near, of=f"mount-known, {reader}", to=f"nfs, {reader}", at_least=least)
    yield _Aim(at=near, of="mount-unknown, c", to="nfs, c", at_least=2)
    for reader, least in (("c", 20_000), ("python", 15_000)):
        yield _Aim(at=far, of=f"mount-known, {reader}", at_least=least)
    for other in ("nfs", "sshfs"):
        yield _Aim(at=far, of="mount-known, c", to=f"{other}, c", at_least=1000)
        for reader in ("c", "c-x8"):
            yield _Aim(at=far, of=f"mount-unknown, {reader}", to=f"{other}, {reader}", at_least=2.5)
    yield _Aim(at=large, of="mount-known, c", to="loader", epoch=_SECOND, at_least=0.85)
    for at in (far, large):
        yield _Aim(at=at, of="fsspec", to="loader", epoch=_SECOND, at_least=0.85)
    for at in (near, far):
        yield _Aim(
            at=at,
            of="mount-known, c",
            to="tmpfs, c",
            what="CPU of the reader",
            quantity=lambda run: run.value(_READER),
            at_most=1.5,
        )
        yield _Aim(
            at=at,
            of="mount-known, c",
            to="sshfs, c",
            what="CPU of reader and agent",
            quantity=_client,
            at_most=0.25,
        )


def files_figures(runs: Sequence[Run], *, bounded: bool) -> list[Figure]:
    """Return what was aimed at, and how many samples failed.

    Args:
        runs: of all scenarios.
        bounded: whether figures have bounds.
    """
    found = [aim.figure(runs, bounded=bounded) for aim in _aims()]
    failed = figure("samples that failed", "", [sum(run.failure is not None for run in runs)], at_most=0)
    return [*filter(None, found), failed]


def values_of(epoch: Epoch) -> dict[str, Value]:
    """Return the values of a run."""
    read = epoch.read
    found = {
        _SPEED: read.files * 1e9 / read.elapsed_ns,
        _TOLD: read.files * 1e9 / (read.elapsed_ns + epoch.told_ns),
        _RATE: read.bytes * 1e3 / read.elapsed_ns,
        _READER: read.cpu_ns / read.files / 1e3,
        _AGENT: epoch.agent_ns / read.files / 1e3,
        _SERVER: epoch.server_ns / read.files / 1e3,
        "length, s": read.elapsed_ns / 1e9,
    }
    return {name: Value(value=value) for name, value in found.items()}


def files_parts(results: Results) -> tuple[Part, ...]:
    """Return the report. The environment comes first."""
    environment, *more = result_parts(results)
    failures = tuple(
        f"{run.scenario}: {run.subject}, round {run.round}: {run.failure}" for run in results.runs if run.failure
    )
    return (
        environment,
        Part(tables=tuple(_table(*of) for of in _scenarios(results))),
        Part(text=_READING),
        Part(heading="Failed", points=failures),
        *more,
    )


def _scenarios(results: Results) -> Iterator[tuple[str, list[Run]]]:
    for scenario in dict.fromkeys(run.scenario for run in results.runs):
        yield scenario, [run for run in results.runs if run.scenario == scenario and run.failure is None]


def _table(scenario: str, runs: Sequence[Run]) -> Table:
    first, second = ([run for run in runs if run.setting == epoch] for epoch in EPOCHS)
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(run.subject for run in runs):

        def cell(quantity: str, of: Sequence[Run] = first, name: str = name) -> Spread:
            return spread([run.value(quantity) for run in of if run.subject == name])

        rows.append(
            (
                name,
                _order(name),
                text(cell(_SPEED)),
                text(cell(_TOLD), spread=False) if "mount-known" in name else "",
                text(cell(_SPEED, second)),
                text(cell(_RATE), spread=False),
                *(text(cell(quantity), spread=False) for quantity in (_READER, _AGENT, _SERVER)),
                *(_ratio(second if other == "loader" else first, name, other) for other in _OTHERS),
            )
        )
    header = (
        _SPEED,
        "order told",
        "second epoch",
        _RATE,
        _READER,
        "agent",
        "server",
        *(f": {name}" for name in _OTHERS),
    )
    return Table(header=(scenario, "order", *header), rows=tuple(rows), names=2)


def _order(name: str) -> str:
    order = SUBJECTS[name.partition(",")[0]].order
    return f"order {order}" if order else ""


def _ratio(runs: Sequence[Run], name: str, other: str) -> str:
    subject, _, reader = name.partition(", ")
    if not _order(name) or subject in ("loader", other):
        return ""
    for to in (f"{other}, {reader}", f"{other}, {reader.replace('python', 'c')}" if reader else f"{other}, c", other):
        pairs = neighbours(runs, name, to)
        if pairs:
            return text(spread([one.value(_SPEED) / beside.value(_SPEED) for one, beside in pairs]))
    return ""


def draw_files(results: Results) -> Any:
    """Return the figure: files a second in the first epoch of each subject and reader, a panel for each scenario."""
    panels = [
        (
            f"{scenario} files, {_FIRST} epoch",
            _SPEED,
            [
                (name, name.partition(",")[0], spread([run.value(_SPEED) for run in runs if run.subject == name]))
                for name in dict.fromkeys(run.subject for run in runs)
            ],
        )
        for scenario, all_runs in _scenarios(results)
        for runs in [[run for run in all_runs if run.setting == _FIRST]]
    ]
    return bar_panels(results, panels, logarithmic=True)
