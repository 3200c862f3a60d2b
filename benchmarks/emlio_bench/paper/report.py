"""The report of the paper's figures: claims on top, then figure by figure.

Covers: tables by figure, words. Pure but for drawing. Does not cover:
claims (emlio_bench.paper.claims), shares of an epoch (emlio_bench.paper.shares), pictures (emlio_bench.paper.plots), files
(emlio_bench.harness.page).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from emlio.units import format_duration
from emlio_bench.harness.page import Part, Picture, write_report
from emlio_bench.harness.report import environment_table
from emlio_bench.harness.spread import Spread, text
from emlio_bench.harness.table import Table
from emlio_bench.paper.claims import claims
from emlio_bench.paper.figures import FIGURES, OURS, PAPERS_WAY, Figure, Task
from emlio_bench.paper.losses.curves import steps_of
from emlio_bench.paper.losses.table import TRAINING, losses_table
from emlio_bench.paper.plots import draw_task
from emlio_bench.paper.published import BATCH, IMPOSSIBLE, RESNET, VGG
from emlio_bench.paper.scale import Scale
from emlio_bench.paper.shares import STAGE_TASKS, share_tables
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.check import Outcome, same_round_ratio
from emlio_bench.race.report.doubts import race_doubts
from emlio_bench.race.report.energy_ratio import energy_ratio
from emlio_bench.race.report.energy_table import energy_table, joules_an_epoch, method_words
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.standing import Standing, best_of, entrants_of, standings
from emlio_bench.race.report.tables import checks_table, entrants_table, links_table, missing_table

__all__ = ["TITLE", "first_words", "is_paper", "paper_parts", "write_paper_report"]

TITLE: Final = "EMLIO: the paper, figure by figure"
_Cell = Callable[[Standing], str]
_SHARES_FIGURE: Final = 1
_CHOSEN: Final = {
    Scale.TINY: "These are two batches, which show that everything works and measure nothing.",
    Scale.FIT: "They were chosen so that the slowest baseline comes to its end in the time given.",
    Scale.FULL: "They are as many as the paper's baseline made requests, where its tables tell them.",
}
"""Sentences about the number of records."""


def write_paper_report(race: Race, folder: Path) -> tuple[Path, ...]:
    """Write the report with its pictures; return its files, the page first."""
    pictures = {task.name: draw_task(race, contests) for task in _tasks() if (contests := _contests(race, task))}
    return write_report(TITLE, paper_parts(race, pictures), race, folder)


def is_paper(race: Race) -> bool:
    """Return whether these are results of `emlio-bench paper`."""
    return "scale" in dict(race.settings)


def first_words(race: Race) -> str:
    """Return the summary for a terminal."""
    checks = claims(race)
    kept, missed, unknown, follow = (
        [check for check in checks if check.outcome is outcome]
        for outcome in (Outcome.KEPT, Outcome.MISSED, Outcome.NOT_MEASURED, Outcome.FOLLOWS)
    )
    words = [_CHOSEN[Scale.TINY]] if _scale(race) is Scale.TINY else []
    words += [f"Of {len(checks)} claims {len(kept)} are kept, {len(missed)} missed, {len(unknown)} not measured"]
    words[-1] += f"; {len(follow)} on energy follow from the time alone." if follow else "."
    if missed:
        words += ["Missed: " + ", ".join(f"{one.name} {one.found} (goal {one.required.bound})" for one in missed) + "."]
    return " ".join(words)


def paper_parts(race: Race, pictures: dict[str, tuple[Picture, ...]]) -> tuple[Part, ...]:
    """Return all parts in order.

    Args:
        race: the race of all figures, as far as it has run.
        pictures: pictures by the name of their task.
    """
    rows = standings(race)
    shown: set[str] = set()
    parts = [
        Part(text=first_words(race)),
        Part(heading="Claim by claim", tables=(checks_table(claims(race)),)),
        *_beside_papers_way(race, rows),
        Part(heading="How it was measured", points=_method(race)),
    ]
    for figure in FIGURES:
        tasks = [task for task in (*figure.tasks, *figure.real) if _contests(race, task)]
        if tasks and (figure.number != _SHARES_FIGURE or len(tasks) == len(figure.tasks)):
            new = [task for task in tasks if task.name not in shown]
            shown |= {task.name for task in tasks}
            parts.append(_figure_part(figure, tasks, new, race, rows, pictures))
    missing = missing_table(entrants_of(race))
    return (
        *parts,
        Part(
            heading="Numbers of the paper that cannot be right",
            points=tuple(f"{one.said}: {one.why}." for one in IMPOSSIBLE),
        ),
        Part(heading="The link, measured first", tables=(links_table(race),) if race.links else ()),
        Part(heading="Caveats", points=race_doubts(race)),
        Part(heading="Systems that could not run", tables=(missing,) if missing.rows else ()),
        Part(heading="Systems, by their own description", tables=(entrants_table(entrants_of(race)),)),
        Part(heading="Machine and settings", tables=(environment_table(race),)),
    )


def _beside_papers_way(race: Race, rows: Sequence[Standing]) -> list[Part]:
    """Return our epochs and those of the paper's method, at each task and round trip at which both ran."""
    cells: list[tuple[str, ...]] = []
    for contest in (contest for task in _tasks() for contest in _contests(race, task)):
        own = {(row.entrant.subject, row.entrant.setting): row for row in rows if row.contest == contest}
        ours, theirs = own.get(OURS), [own.get(subject) for subject in PAPERS_WAY]
        fastest = best_of(row for row in theirs if row is not None)
        if ours is None or fastest is None:
            continue
        ratio = same_round_ratio(fastest, ours, Quantity.FIRST_EPOCH)
        epochs = [
            text(row.of(Quantity.FIRST_EPOCH), spread=False) if row is not None else "-" for row in (ours, *theirs)
        ]
        name = contest.name.rpartition("-")[0]
        cells.append((name, format_duration(contest.rtt_ns), *epochs, text(ratio, spread=False)))
    heading = "Compared with the paper's own method"
    table = Table(
        title=heading,
        header=("task", "round trip", "ours, s", "1 thread", "2 threads", "4 threads", "fastest / ours"),
        rows=tuple(cells),
        names=2,
    )
    words = (
        "Seconds of an epoch of ours, and of the paper's algorithms 2 and 3 with one, two and four sending threads. The last "
        "column is the fastest of them as a multiple of ours: below 1, ours is slower."
    )
    return [Part(heading=heading, text=words, tables=(table,))] if cells else []


def _tasks() -> list[Task]:
    return list({task.name: task for figure in FIGURES for task in (*figure.tasks, *figure.real)}.values())


def _contests(race: Race, task: Task) -> list[Contest]:
    """Return the contests of a task that have runs, from near to far."""
    ran = {run.contest for run in race.runs}
    names = {contest.name: contest for contest in race.contests if contest.name in ran}
    found = [contest for name, contest in names.items() if name.rpartition("-")[0] == task.name]
    return sorted(found, key=lambda contest: contest.rtt_ns)


def _method(race: Race) -> tuple[str, ...]:
    if ("model", "real") in race.settings:
        return (*_real_method(race), *_hosts(race))
    numbers = {task.name: _records(race, task.name) for task in _tasks()}
    steps = (
        f"Steps are pauses of the consumer. They follow from the paper's own epochs: its epoch divided by its batches, where the "
        f"pictures of an epoch are taken to be as many as the requests that explain its baseline, and a batch has {BATCH}: "
        f"{format_duration(RESNET.step_ns)} for ResNet-50 ({RESNET.requests:,.0f} pictures), {format_duration(VGG.step_ns)} for "
        f"VGG-19 ({VGG.requests:,.0f})."
    )
    return (
        *((steps,) if any(contest.step_ns for contest in race.contests) else ()),
        f"Records of an epoch here: {', '.join(f'{name} {count:,}' for name, count in numbers.items() if count)}. "
        f"{_CHOSEN[_scale(race)]} All systems of a figure read the same number.{_trained(race)}",
        _decoding(race),
        _remote_folder(dict(race.settings)),
        "The paper's method is its algorithms 2 and 3 with one, two and four sending threads.",
        *_hosts(race),
        *(TRAINING if any(contest.train for contest in race.contests) else ()),
    )


def _scale(race: Race) -> Scale:
    return Scale(dict(race.settings).get("scale", Scale.FIT))


def _trained(race: Race) -> str:
    """Return the sentence about the length of figure 11, which does not follow from the slowest baseline."""
    steps = next((steps_of(contest) for contest in race.contests if contest.train), 0)
    return f" The training of figure 11 takes {steps:,} steps." if steps else ""


def _decoding(race: Race) -> str:
    numbers = {task.name: {one.decoders for one in _contests(race, task) if one.decode} for task in _tasks()}
    usual = sorted({number for found in numbers.values() for number in found})
    words = ", ".join(
        f"{number} ({', '.join(name for name, found in numbers.items() if number in found)})" for number in usual
    )
    return (
        "Pictures are decoded by DALI on the processor, in PyTorch's loader by torchvision in its workers. Threads of DALI that "
        f"decode: {words or 'none'}."
    )


def _real_method(race: Race) -> tuple[str, ...]:
    numbers = {name: _records(race, name) for name in ("resnet-real", "vgg-real")}
    return (
        f"Steps are real: models of torchvision on the GPU, with a batch of {BATCH}, PyTorch's own precision, forward, backward "
        "and SGD; labels are drawn. The paper's numbers are of another GPU, so only the form of the figures can be compared.",
        f"Records of an epoch here: {', '.join(f'{name} {count:,}' for name, count in numbers.items() if count)}.",
        "Pictures are decoded by DALI on the GPU, in PyTorch's loader by torchvision in its workers on the processor. "
        "dali-local reads the training host's own disk.",
        _remote_folder(dict(race.settings)),
    )


def _remote_folder(told: Mapping[str, str]) -> str:
    if "mount_type" in told:
        return f"The remote folder is {told['mount']}, which was mounted already ({told['mount_type']}); the paper's is NFSv4."
    return "The remote folder is sshfs at its defaults unless a mount was named; the paper's is NFSv4."


def _hosts(race: Race) -> tuple[str, ...]:
    """Return the sentences about the storage host, the network and the source of energy figures."""
    told = dict(race.settings)
    found: list[str] = []
    if "storage" in told:
        rtts = " and ".join(dict.fromkeys(format_duration(contest.rtt_ns) for contest in race.contests))
        found.append(
            f"The storage side ran on {told['storage']} ({told.get('storage_host', 'unknown')}), over a real network: its "
            f"round trip of {rtts} was measured, the least of many pings, and nothing was added. Bytes on the wire are those of "
            "this host's interface, with all other traffic of it."
        )
        if told.get("shares_machine") == str(True):
            found.append("Both hosts are containers or namespaces of one machine, and share its processors.")
    energy = dict.fromkeys(
        f"{one.host} {one.domain.upper()} {method_words(one.method)}"
        for run in race.runs
        if run.energy is not None
        for one in run.energy.hosts
    )
    whole = dict.fromkeys(method_words(run.energy.method) for run in race.runs if run.energy is not None)
    if energy:
        found.append(f"Energy: {', '.join(energy)}.")
    elif whole:
        found.append(
            f"Energy of all together: {'; '.join(whole)}. It is in the results and not in the tables: the power at rest is "
            "unknown, and without it the hosts cannot be separated."
        )
    elif race.runs:
        found.append(f"Energy was not recorded{f': {race.no_energy}' if race.no_energy else ''}.")
    return tuple(found)


def _records(race: Race, task: str) -> int:
    return next((one.corpus.records for one in race.contests if one.name.rpartition("-")[0] == task), 0)


def _figure_part(
    figure: Figure,
    tasks: Sequence[Task],
    new: Sequence[Task],
    race: Race,
    rows: Sequence[Standing],
    pictures: dict[str, tuple[Picture, ...]],
) -> Part:
    tables: list[Table] = []
    folded: list[Table] = []
    told = ""
    if {task.name for task in tasks} >= set(STAGE_TASKS):
        shares, told = share_tables(rows)
        tables += shares
    for task in new:
        contests = _contests(race, task)
        own = [row for row in rows if row.contest in contests]
        tables += [of for contest in contests if (of := losses_table(race, contest)) is not None]
        tables.append(_epochs_table(task, contests, own))
        energy = _joules_table(task, contests, own)
        if energy is not None:
            tables.append(energy)
            tables.append(_ratios_table(task, contests, own))
            folded += [
                replace(of, title=f"{task.name} at {format_duration(contest.rtt_ns)}: {of.title}")
                for contest in contests
                if (of := energy_table([row for row in own if row.contest == contest])).rows
            ]
    words = "; ".join(f"{task.name}: {task.words}, {_records(race, task.name):,} records" for task in tasks)
    return Part(
        heading=f"Figure {figure.number}: {figure.words}",
        text=f"{words}. {told}".rstrip(),
        pictures=tuple(picture for task in new for picture in pictures.get(task.name, ())),
        tables=tuple(tables),
        folded=tuple(folded),
    )


def _epochs_table(task: Task, contests: Sequence[Contest], rows: Sequence[Standing]) -> Table:
    return _by_round_trip(
        f"{task.name}: seconds of an epoch, from before the constructor",
        contests,
        rows,
        lambda row: text(row.of(Quantity.FIRST_EPOCH)),
    )


def _joules_table(task: Task, contests: Sequence[Contest], rows: Sequence[Standing]) -> Table | None:
    if not any(joules_an_epoch(row) for row in rows):
        return None
    return _by_round_trip(
        f"{task.name}: joules of an epoch, both hosts: all (at rest)",
        contests,
        rows,
        lambda row: _two(joules_an_epoch(row), joules_an_epoch(row, of=lambda one: one.idle_joules)),
    )


def _ratios_table(task: Task, contests: Sequence[Contest], rows: Sequence[Standing]) -> Table:
    ours = {row.contest.name: row for row in rows if row.is_ours}

    def beside(row: Standing) -> str:
        mine = ours.get(row.contest.name)
        found = None if mine is None else energy_ratio(row, mine)
        return "-" if found is None else found.text

    return _by_round_trip(
        f"{task.name}: energy of an epoch as a multiple of ours (its error): joules more at rest + above rest",
        contests,
        [row for row in rows if not row.is_ours],
        beside,
    )


def _two(whole: Spread | None, rest: Spread | None) -> str:
    return f"{text(whole, spread=False)} ({text(rest, spread=False)})" if whole is not None else "-"


def _by_round_trip(title: str, contests: Sequence[Contest], rows: Sequence[Standing], cell: _Cell) -> Table:
    subjects = list(dict.fromkeys((row.entrant.subject, row.entrant.setting) for row in rows))
    found = {(row.contest.name, row.entrant.subject, row.entrant.setting): cell(row) for row in rows}
    return Table(
        title=title,
        header=("system", "setting", *(format_duration(contest.rtt_ns) for contest in contests)),
        rows=tuple(
            (*subject, *(found.get((contest.name, *subject), "-") for contest in contests)) for subject in subjects
        ),
        names=2,
        ours=frozenset(place for place, subject in enumerate(subjects) if subject[0] == OURS[0]),
    )
