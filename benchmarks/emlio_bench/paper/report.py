"""The report of the paper's figures: claims, the paper's own method, each task by round trip."""

from collections.abc import Callable, Sequence
from typing import Final

from emlio.units import format_duration
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.report import Part, Table
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import text
from emlio_bench.paper.claims import claims
from emlio_bench.paper.curves import losses_table
from emlio_bench.paper.figures import BATCH, FIGURES, OURS, PAPERS_WAY, RESNET, VGG, Task
from emlio_bench.paper.scale import Scale
from emlio_bench.paper.shares import STAGE_TASKS, share_tables
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.check import Outcome
from emlio_bench.race.report.document import checks_part, closing_parts
from emlio_bench.race.report.standing import Standing, best_of, energy_ratio, same_round_ratio, standings

__all__ = ["contests_of", "paper_parts", "task_words", "tasks_of"]

_Cell = Callable[[Standing], str]

_CHOSEN: Final = {
    Scale.TINY: "These are two batches, which show that everything works and measure nothing.",
    Scale.FIT: "They were chosen so that the slowest baseline comes to its end in the time given.",
    Scale.FULL: "They are as many as the paper's baseline made requests, where its tables tell them.",
}


def paper_parts(race: Results) -> tuple[Part, ...]:
    """Return the parts of the report, in their order."""
    rows, checks = standings(race), claims(race)
    tasks = [task for task in tasks_of() if contests_of(race, task)]
    return (
        Part(text=_first_words(race)),
        checks_part("Claim by claim", checks),
        _beside_papers_way(rows, [contest for task in tasks for contest in contests_of(race, task)]),
        Part(heading="How it was measured", points=_method(race)),
        *([_shares_part(rows)] if {task.name for task in tasks} >= set(STAGE_TASKS) else []),
        *(_task_part(task, race, rows) for task in tasks),
        *closing_parts(race),
    )


def tasks_of() -> list[Task]:
    """Return each task once."""
    return list({task.name: task for figure in FIGURES for task in (*figure.tasks, *figure.real)}.values())


def contests_of(race: Results, task: Task) -> list[Contest]:
    """Return the contests of a task that have run, by round trip."""
    ran = {run.scenario for run in race.runs}
    found = [one for one in race.contests if one.name in ran and one.name.rpartition("-")[0] == task.name]
    return sorted(found, key=lambda contest: contest.rtt_ns)


def task_words(task: Task) -> str:
    """Return the figures that a task belongs to, and its name."""
    numbers = [str(one.number) for one in FIGURES if task.name in {each.name for each in (*one.tasks, *one.real)}]
    return f"Figure{'s' * (len(numbers) > 1)} {' and '.join(numbers)}, {task.name}"


def _first_words(race: Results) -> str:
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


def _scale(race: Results) -> Scale:
    return Scale(dict(race.settings).get("scale", Scale.FIT))


def _beside_papers_way(rows: Sequence[Standing], contests: Sequence[Contest]) -> Part:
    cells: list[tuple[str, ...]] = []
    for contest in contests:
        own = {row.who: row for row in rows if row.contest == contest}
        ours, theirs = own.get(OURS), [own.get(subject) for subject in PAPERS_WAY]
        fastest = best_of(row for row in theirs if row is not None)
        if ours is None or fastest is None:
            continue
        epochs = ("-" if row is None else text(row.of(Quantity.FIRST_EPOCH), spread=False) for row in (ours, *theirs))
        times = text(same_round_ratio(fastest, ours, Quantity.FIRST_EPOCH), spread=False)
        cells.append((contest.name.rpartition("-")[0], format_duration(contest.rtt_ns), *epochs, times))
    heading = "Compared with the paper's own method"
    header = ("task", "round trip", "ours, s", "1 thread", "2 threads", "4 threads", "fastest / ours")
    words = (
        "Seconds of an epoch of ours, and of the paper's algorithms 2 and 3 with one, two and four sending threads. The last "
        "column is the fastest of them as a multiple of ours: below 1, ours is slower."
    )
    table = Table(title=heading, header=header, rows=tuple(cells), names=2)
    return Part(heading=heading, text=words, tables=(table,)) if cells else Part()


def _method(race: Results) -> tuple[str, ...]:
    told = dict(race.settings)
    numbers = {one.name.rpartition("-")[0]: one.corpus.records for one in race.contests}
    found = [
        f"Records of an epoch: {', '.join(f'{name} {count:,}' for name, count in numbers.items())}. "
        f"{_CHOSEN[_scale(race)]} All systems of a figure read the same number.",
    ]
    if told.get("model") == "real":
        found.append(
            f"Steps are real: models of torchvision on the GPU, with a batch of {BATCH}, PyTorch's own precision, forward, "
            "backward and SGD; labels are drawn. Pictures are decoded by DALI on the GPU."
        )
    else:
        found.append(
            f"Steps are pauses of the consumer. They follow from the paper's own epochs: {format_duration(RESNET.step_ns)} for "
            f"ResNet-50 ({RESNET.requests:,.0f} requests), {format_duration(VGG.step_ns)} for VGG-19. Pictures "
            "are decoded by DALI on the processor, in PyTorch's loader by torchvision in its workers."
        )
    if "mount_type" in told:
        found.append(f"The remote folder is {told['mount']} ({told['mount_type']}); the paper's is NFSv4.")
    else:
        found.append("The remote folder is sshfs at its defaults unless a mount was named; the paper's is NFSv4.")
    if "storage" in told:
        found.append(
            f"The storage side ran on {told['storage']} ({told.get('storage_host', 'unknown')}), over a real network, whose "
            "round trip was measured. Bytes on the wire are those of this host's interface, with all other traffic of it."
        )
    if told.get("shares_machine") == str(True):
        found.append("Both hosts are containers or namespaces of one machine, and share its processors.")
    methods = dict.fromkeys(run.words["energy"] for run in race.runs if "energy" in run.words)
    return (*found, *([f"Energy: {'; '.join(methods)}."] if methods else []))


def _shares_part(rows: Sequence[Standing]) -> Part:
    tables, told = share_tables(rows)
    return Part(heading="Figure 1: shares of an epoch", text=told, tables=tables)


def _task_part(task: Task, race: Results, rows: Sequence[Standing]) -> Part:
    contests = contests_of(race, task)
    own = [row for row in rows if row.contest in contests]
    tables = [of for contest in contests if (of := losses_table(race, contest)) is not None]
    tables.append(
        _by_round_trip(
            "seconds of an epoch, from before the constructor",
            contests,
            own,
            lambda row: text(row.of(Quantity.FIRST_EPOCH)),
        )
    )
    if any(row.of(Quantity.ENERGY) for row in own):
        ours = {row.contest: row for row in own if row.is_ours}

        def joules(row: Standing) -> str:
            whole, rest = row.of(Quantity.ENERGY), row.of(Quantity.REST_ENERGY)
            times = energy_ratio(row, ours[row.contest]) if row.contest in ours and not row.is_ours else None
            parts = text(whole, spread=False), f"({text(rest, spread=False)})"
            return " ".join((*parts, *([f"{text(times, spread=False)} x"] if times is not None else [])))

        tables.append(
            _by_round_trip("joules of an epoch, both hosts: all (at rest), times ours", contests, own, joules)
        )
    words = f"{task.words}, {contests[0].corpus.records:,} records"
    return Part(heading=task_words(task), text=words, tables=tuple(tables))


def _by_round_trip(title: str, contests: Sequence[Contest], rows: Sequence[Standing], cell: _Cell) -> Table:
    subjects = list(dict.fromkeys(row.who for row in rows))
    found = {(row.contest.name, *row.who): cell(row) for row in rows}
    return Table(
        title=title,
        header=("system", "setting", *(format_duration(contest.rtt_ns) for contest in contests)),
        rows=tuple(
            (*subject, *(found.get((contest.name, *subject), "-") for contest in contests)) for subject in subjects
        ),
        names=2,
    )
