"""The paper's figures as contests: records, batch, step, and who takes part."""

from dataclasses import dataclass, replace
from typing import Final

from emlio.errors import ConfigError
from emlio.units import format_duration
from emlio_bench.harness.contest import DIGIT_PICTURES, PICTURES, Contest
from emlio_bench.race.records.corpus import CORPORA, corpus_of

__all__ = [
    "BASELINES",
    "BATCH",
    "DALI_LOCAL",
    "FIGURES",
    "HALF_LOCAL",
    "LEARNED_RTT_NS",
    "NEAREST_NS",
    "OURS",
    "OUR_LOCAL",
    "PAPERS_WAY",
    "RESNET",
    "RTTS_NS",
    "VGG",
    "Figure",
    "Task",
    "Training",
    "contest_of",
    "figures_of",
]

_MS: Final = 1_000_000
BATCH: Final = 64
"""Pictures in a batch. The paper does not name it; 64 is usual for ResNet-50 on one GPU of 24 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Epochs of one training in the paper's tables.

    Attributes:
        name: the model and the place of the data.
        ours_s: an epoch of the paper's EMLIO, the same at each round trip.
        local_s: an epoch of DALI on local data; None if the table does not have it.
        baseline_s: epochs of DALI over NFSv4, by the round trip in nanoseconds.
    """

    name: str
    ours_s: float
    local_s: float | None
    baseline_s: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if self.ours_s <= 0 or len(self.baseline_s) < 2:
            raise ConfigError(f"a training must have an epoch and a baseline at two round trips, got {self}")

    @property
    def requests(self) -> float:
        """Requests one after the other that explain the baseline's longest epoch beside its shortest."""
        (near_ns, near_s), (far_ns, far_s) = min(self.baseline_s), max(self.baseline_s)
        return (far_s - near_s) / ((far_ns - near_ns) / 1e9)

    @property
    def step_ns(self) -> int:
        """The step of a batch.

        It is the epoch of the paper's EMLIO, which never waits, divided by its batches; the pictures
        of an epoch are taken to be as many as the baseline's requests.
        """
        return round(self.ours_s * 1e9 * BATCH / self.requests)

    def speed_up(self, rtt_ns: int) -> float:
        """Return how many times longer the baseline's epoch is at this round trip."""
        found = dict(self.baseline_s).get(rtt_ns)
        if found is None:
            raise ConfigError(f"{self.name} must have an epoch at {rtt_ns} ns, the paper's table has none")
        return found / self.ours_s


RESNET: Final = Training(
    name="ResNet-50",
    ours_s=156.4,
    local_s=151.7,
    baseline_s=((100_000, 165.4), (10 * _MS, 552.5), (30 * _MS, 1699.3)),
)
VGG: Final = Training(
    name="VGG-19",
    ours_s=141.0,
    local_s=None,
    baseline_s=((100_000, 142.6), (10 * _MS, 660.9), (30 * _MS, 2096.8)),
)
HALF_LOCAL: Final = Training(
    name="ResNet-50, half of the data local",
    ours_s=222.0,
    local_s=None,
    baseline_s=((100_000, 230.9), (10 * _MS, 1422.5), (30 * _MS, 4154.7)),
)


NEAREST_NS: Final = 100_000
"""The paper's round trip in one rack."""

RTTS_NS: Final = (NEAREST_NS, 1 * _MS, 10 * _MS, 30 * _MS)
"""The paper's round trips."""

LEARNED_RTT_NS: Final = 10 * _MS
"""The round trip of the paper's figure 11."""

_DECODERS: Final = 2
"""Decoding threads.

With one, a processor of a small machine takes longer to decode a picture than the paper's step takes
for it, and an epoch shows the decoder.
"""

Subject = tuple[str, str]
"""A system and its setting."""

OURS: Final[Subject] = ("emlio", "default")
OUR_LOCAL: Final[Subject] = ("emlio-local", "default")
DALI_LOCAL: Final[Subject] = ("dali-local", "default")
PAPERS_WAY: Final[tuple[Subject, ...]] = (("paper", "default"), ("paper", "2 workers"), ("paper", "4 workers"))
BASELINES: Final[tuple[Subject, ...]] = (
    ("pytorch-files", "default"),
    ("dali-file", "default"),
    ("dali-tfrecord", "default"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The work of each subject in a figure, at each round trip.

    Attributes:
        name: short stable name.
        words: description for the report.
        corpus: a key of `CORPORA`.
        batch: records in a batch.
        step_ns: length of the step after each batch; 0 for no step.
        decode: whether pictures are decoded.
        decoders: decoding threads of DALI.
        halves: whether every second shard is on the training host.
        model: a model of torchvision whose steps are taken on the GPU in place of pauses; empty for
            pauses.
        train: whether a model learns from the decoded pictures, in place of a step.
        subjects: who takes part.
        fit_records: records on a small machine within the usual time.
        least_records: records that are needed whatever the time.
        most_records: records that are enough in any time; 0 for no bound.
        rtts_ns: the only round trips of this task; empty for those that were asked for.
        rounds: least number of rounds.
    """

    name: str
    words: str
    corpus: str
    subjects: tuple[Subject, ...]
    fit_records: int
    batch: int = BATCH
    step_ns: int = 0
    decode: bool = False
    decoders: int = _DECODERS
    halves: bool = False
    model: str = ""
    train: bool = False
    least_records: int = 0
    most_records: int = 0
    rtts_ns: tuple[int, ...] = ()
    rounds: int = 1

    def __post_init__(self) -> None:
        if self.corpus not in CORPORA or not self.subjects:
            raise ConfigError(f"a task must have known records and at least one subject, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of the paper.

    Attributes:
        number: its number.
        words: what it shows.
        tasks: the tasks that are measured for it; figures may share tasks.
        real: the tasks that are measured in their place with real models; empty if there are none.
    """

    number: int
    words: str
    tasks: tuple[Task, ...]
    real: tuple[Task, ...] = ()

    @property
    def trains(self) -> bool:
        """True if a model is trained for it."""
        return any(task.train for task in self.tasks)


_ALL: Final = (OURS, *PAPERS_WAY, *BASELINES)
_STAGES_RECORDS: Final = 1536
"""Records of the tasks of figure 1, the same for all: shares are differences of their epochs."""
_RESNET: Final = Task(
    name="resnet",
    words=f"pictures as large as ImageNet's, decoded, and a step of {format_duration(RESNET.step_ns)} for ResNet-50",
    corpus=PICTURES,
    step_ns=RESNET.step_ns,
    decode=True,
    subjects=_ALL,
    fit_records=_STAGES_RECORDS,
)
_VGG: Final = replace(
    _RESNET,
    name="vgg",
    words=f"pictures as large as ImageNet's, decoded, and a step of {format_duration(VGG.step_ns)} for VGG-19",
    step_ns=VGG.step_ns,
    fit_records=2560,
)
_STEADY, _STEADY_VGG = (
    replace(
        task,
        name=f"{task.name}-long",
        words=f"{task.words}; long epochs of ours alone",
        subjects=(OURS,),
        fit_records=count,
    )
    for task, count in ((_RESNET, 19200), (_VGG, 25600))
)
_RESNET_REAL, _VGG_REAL = (
    replace(
        task,
        name=f"{task.name}-real",
        words=f"pictures as large as ImageNet's, decoded on the GPU, and steps of {name} on the GPU",
        model=model,
        step_ns=0,
        subjects=(OURS, DALI_LOCAL, PAPERS_WAY[0], BASELINES[0], BASELINES[2]),
        fit_records=1280,
    )
    for task, name, model in ((_RESNET, "ResNet-50", "resnet50"), (_VGG, "VGG-19", "vgg19"))
)
_READ: Final = Task(
    name="read",
    words="pictures that are read and not decoded",
    corpus="imagenet-like",
    subjects=_ALL,
    fit_records=_STAGES_RECORDS,
)
_DECODE: Final = Task(
    name="decode",
    words="pictures that are read and decoded, without a step",
    corpus=PICTURES,
    decode=True,
    subjects=_ALL,
    fit_records=_STAGES_RECORDS,
)
_COCO: Final = replace(
    _RESNET,
    name="coco",
    words=f"pictures as large as COCO's, decoded, and a step of {format_duration(RESNET.step_ns)} for ResNet-50",
    corpus="coco-pictures",
    fit_records=960,
)
_LOCAL: Final = Task(
    name="local",
    words=f"{_RESNET.words}; for DALI's own reader and for our local mode the data are on the training host",
    corpus=PICTURES,
    step_ns=RESNET.step_ns,
    decode=True,
    subjects=(OURS, OUR_LOCAL, DALI_LOCAL),
    fit_records=6400,
    rtts_ns=(NEAREST_NS,),
    rounds=10,
)
_LEARNED_BATCH: Final = 16
_TWO_MB: Final = "records of 2 MB, read as fast as can be"

FIGURES: Final = (
    Figure(
        number=1,
        words="share of reading, preprocessing and training in an epoch, in time and in energy",
        tasks=(_READ, _DECODE, _RESNET),
    ),
    Figure(
        number=5, words="ResNet-50 on pictures like ImageNet's", tasks=(_RESNET, _STEADY, _LOCAL), real=(_RESNET_REAL,)
    ),
    Figure(number=6, words="ResNet-50 on pictures like COCO's", tasks=(_COCO,)),
    Figure(
        number=7,
        words="records of 2 MB, one connection or thread",
        tasks=(
            Task(
                name="large-one",
                words=f"{_TWO_MB}, one connection or thread",
                corpus="large",
                batch=16,
                subjects=(OURS, ("emlio-streams-1", "default"), PAPERS_WAY[0], *BASELINES),
                fit_records=160,
            ),
        ),
    ),
    Figure(
        number=8,
        words="records of 2 MB, two connections or threads",
        tasks=(
            Task(
                name="large-two",
                words=f"{_TWO_MB}, two connections or threads",
                corpus="large",
                batch=16,
                subjects=(OURS, ("emlio-streams-2", "default"), PAPERS_WAY[1], *BASELINES),
                fit_records=160,
            ),
        ),
    ),
    Figure(number=9, words="VGG-19 on pictures like ImageNet's", tasks=(_VGG, _STEADY_VGG), real=(_VGG_REAL,)),
    Figure(
        number=10,
        words="every second shard on the training host",
        tasks=(
            Task(
                name="halves",
                words=f"{_RESNET.words}, and every second shard on the training host",
                corpus=PICTURES,
                step_ns=RESNET.step_ns,
                decode=True,
                halves=True,
                subjects=(OURS, ("dali-tfrecord", "default")),
                fit_records=2560,
            ),
        ),
    ),
    Figure(
        number=11,
        words="loss of a training over steps and over seconds",
        tasks=(
            Task(
                name="training",
                words="a ResNet-50 shrunk to fit learns digits from pictures as large as COCO's, decoded and cropped by DALI",
                corpus=DIGIT_PICTURES,
                batch=_LEARNED_BATCH,
                decode=True,
                decoders=1,
                train=True,
                subjects=(OURS, ("dali-tfrecord", "default")),
                fit_records=200 * _LEARNED_BATCH,
                least_records=200 * _LEARNED_BATCH,
                most_records=200 * _LEARNED_BATCH,
                rtts_ns=(LEARNED_RTT_NS,),
                rounds=2,
            ),
        ),
    ),
)


def figures_of(numbers: tuple[int, ...], *, real: bool = False) -> tuple[Figure, ...]:
    """Return the figures with these numbers; all if there are none.

    Args:
        numbers: their numbers.
        real: whether their tasks are those with real models, which not all figures have.

    Raises:
        ConfigError: there is no such figure.
    """
    if real:
        known = {figure.number: replace(figure, tasks=figure.real) for figure in FIGURES if figure.real}
    else:
        known = {figure.number: figure for figure in FIGURES}
    unknown = sorted(set(numbers) - set(known))
    if unknown:
        of = " with real models" if real else ""
        raise ConfigError(
            f"a figure{of} must be one of {', '.join(map(str, known))}, got {', '.join(map(str, unknown))}"
        )
    return tuple(figure for figure in known.values() if not numbers or figure.number in numbers)


def contest_of(task: Task, rtt_ns: int, *, records: int, limit_ns: int) -> Contest:
    """Return a task at one round trip.

    Args:
        task: the task.
        rtt_ns: round trip of the link.
        records: records of an epoch.
        limit_ns: time limit of an epoch.
    """
    return Contest(
        name=f"{task.name}-{format_duration(rtt_ns).replace(' ', '')}",
        words=task.words,
        corpus=corpus_of(task.corpus, records * CORPORA[task.corpus]),
        rtt_ns=rtt_ns,
        batch=task.batch,
        epochs=1,
        step_ns=task.step_ns,
        decode=task.decode,
        decoders=task.decoders,
        halves=task.halves,
        train=task.train,
        limit_ns=limit_ns,
    )
