"""A race that never was run, the same each time: for tests of what is made of one.

Covers: contests, entrants, links and runs with figures like those of this kind of machine. Does not cover: running.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from emlio_bench.harness.contest import Contest, Corpus, Entrant, Family
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.results import RESULTS, Results, Run, write_results
from emlio_bench.link.accuracy import LinkReport, Load, judge
from emlio_bench.link.contract import LinkKind, LinkSpec
from emlio_bench.race.records.order import Epoch, Finished, ids_crc
from emlio_bench.race.run.joules import Energy, HostEnergy
from emlio_bench.race.run.one_machine import Traffic
from emlio_bench.race.run.values import Heard, exactness, values_of

__all__ = [
    "CONTEST",
    "ENVIRONMENT",
    "MS",
    "S",
    "keep_race",
    "make_contest",
    "make_entrant",
    "make_epoch",
    "make_limit",
    "make_link",
    "make_race",
    "make_run",
    "sample_race",
]

S = 1_000_000_000
MS = 1_000_000
LIMIT_S = 45.0

ENVIRONMENT = Environment(
    kernel="6.1.0",
    cpu="Imagined CPU @ 2.80GHz",
    cores=2,
    memory_bytes=8_000_000_000,
    python="CPython 3.11.9",
    pyzmq="26.0",
    libzmq="4.3.5",
    numpy="2.0.0",
    iperf3="iperf 3.12",
    emlio="0.1.0",
    commit="0123456789ab",
    tcp_wmem="4096 16384 4194304",
    tcp_rmem="4096 131072 6291456",
    tcp_congestion_control="cubic",
)


def make_contest(
    name: str = "600MB-30ms",
    *,
    rtt_ns: int = 30 * MS,
    records: int = 6000,
    record_bytes: int = 100_000,
    decode: bool = False,
) -> Contest:
    return Contest(
        name=name,
        words="Whole epochs from construction on, nobody computes",
        corpus=Corpus(records=records, record_bytes=record_bytes),
        rtt_ns=rtt_ns,
        decode=decode,
        limit_ns=round(LIMIT_S * S),
    )


CONTEST = make_contest()


def make_entrant(
    subject: str, setting: str = "default", *, family: Family = "objects", missing: str | None = None
) -> Entrant:
    return Entrant(
        subject=subject,
        setting=setting,
        words=f"what {setting} means",
        family=family,
        shuffles="in some way",
        exact=True if family == "ours" else None,
        leaves_on_disk="all chunks, up to a bound" if family == "objects" else "nothing",
        versions=f"{subject} 1.2.3",
        missing=missing,
    )


def make_epoch(
    number: int,
    corpus: Corpus,
    seconds: float,
    *,
    first_batch_s: float = 0.1,
    begun_ns: int = 0,
    blocks: float = 9.9,
    lost: int = 0,
    repeated: int = 0,
    batch: int = 64,
    cut: bool = False,
) -> Epoch:
    records = corpus.records - lost + repeated
    exact = not lost and not repeated
    return Epoch(
        epoch=number,
        begun_ns=begun_ns,
        first_batch_ns=begun_ns + round(first_batch_s * S),
        ended_ns=begun_ns + round(seconds * S),
        records=records,
        payload_bytes=records * corpus.record_bytes,
        wait_ns=round(0.9 * seconds * S),
        batches=-(-records // batch),
        blocks=blocks,
        distinct=corpus.records - lost,
        cut=cut,
        ids_crc=ids_crc(corpus) if exact else 1,
    )


def make_run(
    contest: Contest,
    subject: str,
    setting: str = "default",
    *,
    round: int = 0,
    seconds: float = 1.0,
    later_s: float | None = None,
    first_batch_s: float = 0.1,
    cpu_s: float = 1.0,
    memory_bytes: int = 300_000_000,
    left_bytes: int = 0,
    blocks: float = 9.9,
    lost: int = 0,
    joules: float | None = None,
    failure: str | None = None,
) -> Run:
    """One run; one that would take longer than the contest's limit is cut."""
    if failure is not None:
        return Run(scenario=contest.name, subject=subject, setting=setting, round=round, place=0, failure=failure)
    corpus = contest.corpus
    lengths = [seconds, *[later_s if later_s is not None else seconds] * (contest.epochs - 1)]
    epochs: list[Epoch] = []
    for number, length in enumerate(lengths):
        part = min(LIMIT_S / length, 1.0)
        epochs.append(
            make_epoch(
                number,
                corpus,
                length * part,
                first_batch_s=first_batch_s,
                blocks=blocks,
                lost=lost if part == 1.0 else round_down(corpus.records * (1 - part)),
                batch=contest.batch,
                cut=part < 1.0,
            )
        )
        if part < 1.0:
            break
    heard = Heard(
        epochs=epochs,
        finished=Finished(
            cpu_ns=round_ns(cpu_s), peak_rss_bytes=2 * memory_bytes, peak_pss_bytes=memory_bytes, cache_bytes=left_bytes
        ),
        storage_cpu_ns=round_ns(cpu_s * 0.6),
        traffic=Traffic(wire_bytes=sum(epoch.payload_bytes for epoch in epochs) * 103 // 100),
        elapsed_ns=round_ns(sum(lengths) + 1),
    )
    return _run_of(
        contest,
        subject,
        setting,
        round,
        heard,
        None if joules is None else _energy(joules * len(epochs), contest.step_ns * len(epochs) / S),
    )


def _run_of(
    contest: Contest, subject: str, setting: str, round: int, heard: Heard, energy: Energy | None = None
) -> Run:
    words = {"exact": exactness(contest, heard.epochs), "energy": "" if energy is None else energy.told}
    return Run(
        scenario=contest.name,
        subject=subject,
        setting=setting,
        round=round,
        place=0,
        values=values_of(contest, heard, energy),
        words={name: told for name, told in words.items() if told},
    )


def _energy(joules: float, step_s: float) -> Energy:
    train = min(40 * step_s, joules)
    hosts = tuple(
        HostEnergy(
            host=host, domain="cpu", idle_joules=0.46 * joules, active_joules=0.04 * joules, method="estimated ±30%"
        )
        for host in ("compute", "storage")
    )
    return Energy(joules=joules, method="estimate ±30 %", train_joules=train, read_joules=joules - train, hosts=hosts)


def round_ns(seconds: float) -> int:
    return int(seconds * S)


def round_down(value: float) -> int:
    return int(value)


def make_limit(contest: Contest, streams: int, gigabits: float, *, round: int = 0) -> Run:
    epoch = Epoch(
        epoch=0,
        begun_ns=0,
        first_batch_ns=0,
        ended_ns=3 * S,
        records=0,
        payload_bytes=int(gigabits * 3e9 / 8),
        wait_ns=3 * S,
        batches=0,
        blocks=0.0,
        distinct=0,
        cut=False,
        ids_crc=0,
    )
    setting = f"{streams} streams" if streams > 1 else "1 stream"
    heard = Heard(epochs=[epoch], finished=Finished(cpu_ns=S, peak_rss_bytes=1, peak_pss_bytes=1, cache_bytes=0))
    return _run_of(contest, "iperf3", setting, round, heard)


def make_link(contest: Contest, *, rtt_ns: int | None = None) -> LinkReport:
    spec = LinkSpec(rtt_ns=contest.rtt_ns)
    loads = [
        Load(
            streams=streams,
            payload_bytes=int(gigabits * 5e8),
            elapsed_ns=4 * S,
        )
        for streams, gigabits in ((1, 0.94), (16, 9.2))
    ]
    found = contest.rtt_ns if rtt_ns is None else rtt_ns
    return judge(spec, LinkKind.EMULATED, [found + step * 10_000 for step in range(20)], loads)


def make_race(
    contests: Sequence[Contest], entrants: Sequence[Entrant], runs: Sequence[Run], *, benchmark: str = "race"
) -> Results:
    return Results(
        benchmark=benchmark,
        environment=ENVIRONMENT,
        settings=(("rounds", "3"), ("rtt", "30ms")),
        begun="2026-01-02T03:04:05Z",
        contests=tuple(contests),
        entrants=tuple(entrants),
        links=tuple((contest.name, make_link(contest)) for contest in contests),
        runs=tuple(runs),
    )


# Subject, setting, family, seconds without distance, round trips that nothing overlaps, start, CPU seconds, MB, blocks, left.
_FIELD: tuple[tuple[str, str, Family, float, float, float, float, int, float, bool], ...] = (
    ("emlio", "default", "ours", 0.62, 9, 0.10, 1.9, 210, 9.94, False),
    ("emlio", "shards", "ours", 0.60, 9, 0.10, 1.8, 210, 1.1, False),
    ("paper", "default", "ours", 1.1, 120, 0.15, 2.6, 260, 1.0, False),
    ("litdata", "default", "objects", 11.8, 9, 1.3, 13.0, 900, 1.4, True),
    ("litdata", "tuned, 4 workers", "objects", 2.3, 22, 1.2, 3.3, 900, 1.4, True),
    ("litdata", "ahead", "objects", 2.5, 23, 1.2, 3.4, 1100, 1.4, True),
    ("mosaic", "default", "objects", 2.7, 230, 1.5, 4.3, 1300, 9.9, True),
    ("mosaic", "8 workers", "objects", 2.9, 95, 1.6, 5.1, 2100, 9.9, True),
    ("webdataset", "default", "http", 2.2, 150, 0.4, 3.7, 700, 8.3, False),
    ("webdataset", "500 a tar, 8 workers", "http", 2.6, 31, 0.5, 1.7, 1100, 4.3, False),
    ("pytorch-files", "default", "files", 4.1, 3100, 0.9, 6.5, 800, 9.9, False),
    ("pytorch-files", "tuned", "files", 3.4, 380, 1.0, 6.1, 1900, 9.9, False),
    ("dali-file", "default", "files", 3.2, 6100, 0.5, 3.9, 520, 6.3, False),
    ("dali-file", "tuned", "files", 3.0, 900, 0.5, 3.7, 540, 6.3, False),
    ("dali-tfrecord", "default", "files", 1.9, 720, 0.4, 2.2, 480, 2.6, False),
)


def sample_race(rtts_ns: Sequence[int] = (30 * MS,), *, rounds: int = 3) -> Results:
    """What a race of eight systems might give."""
    draws = Random(7)
    contests = [make_contest(f"600MB-{rtt_ns / MS:g}ms", rtt_ns=rtt_ns) for rtt_ns in rtts_ns]
    entrants = [make_entrant(subject, setting, family=family) for subject, setting, family, *_ in _FIELD]
    entrants += [make_entrant("iperf3", f"{streams} streams", family="limit") for streams in (16, 32)]
    entrants.append(make_entrant("grain", family="files", missing="needs its environment, jax, which is not made"))
    runs: list[Run] = []
    for contest in contests:
        for number in range(rounds):
            for subject, setting, _, base_s, trips, start_s, cpu_s, memory, blocks, leaves in _FIELD:
                rtt_s = contest.rtt_ns / S
                wander = draws.uniform(0.97, 1.04)
                runs.append(
                    make_run(
                        contest,
                        subject,
                        setting,
                        round=number,
                        seconds=(base_s + trips * rtt_s + start_s) * wander,
                        later_s=(base_s + 0.8 * trips * rtt_s) * wander,
                        first_batch_s=(start_s + min(trips, 9) * rtt_s) * wander,
                        cpu_s=cpu_s * wander,
                        memory_bytes=memory * 1_000_000,
                        left_bytes=contest.corpus.payload_bytes if leaves else 0,
                        blocks=blocks,
                        joules=(40 * (base_s + trips * rtt_s) + 20 * cpu_s) * wander,
                    )
                )
            for streams, gigabits in ((16, 9.2), (32, 9.4)):
                runs.append(make_limit(contest, streams, gigabits * draws.uniform(0.98, 1.02), round=number))
    runs.append(
        make_run(contests[0], "mosaic", "8 workers", round=rounds, failure="the consumer ended with 1: no room")
    )
    return make_race(contests, entrants, runs)


def keep_race(race: Results, folder: Path) -> None:
    """As a race leaves it."""
    write_results(race, folder / RESULTS)
