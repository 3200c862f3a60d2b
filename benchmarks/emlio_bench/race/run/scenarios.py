"""The scenarios of the race by name, after the paper's experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError
from emlio.units import format_duration, format_size
from emlio_bench.harness.contest import Contest
from emlio_bench.race.records.corpus import corpus_of

__all__ = ["SCENARIOS", "Scenario", "contests_of"]

_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A contest without its link and its size.

    Attributes:
        words: description for the report.
        corpus: a key of `CORPORA`.
        batch: records in a batch.
        step_ns: length of the consumer's step after each batch.
        decode: whether pictures are decoded.
        halves: whether every second shard is on the training host.
    """

    words: str
    corpus: str
    batch: int = 64
    step_ns: int = 0
    decode: bool = False
    halves: bool = False


SCENARIOS: Final = {
    "read": Scenario(words="records as large as ImageNet's, read as fast as can be", corpus="imagenet-like"),
    "coco": Scenario(words="records as large as COCO's, read as fast as can be", corpus="coco-like"),
    "large": Scenario(
        words="records of 2 MB, read as fast as can be (the paper's figures 7 and 8)", corpus="large", batch=16
    ),
    "small": Scenario(words="records of 3 kB, read as fast as can be", corpus="small", batch=256),
    "tokens": Scenario(
        words="sequences of 2,048 tokens of 4 bytes, read as fast as can be", corpus="tokens", batch=256
    ),
    "short-tokens": Scenario(
        words="sequences of 256 tokens of 4 bytes, read as fast as can be", corpus="short-tokens", batch=1024
    ),
    "pictures": Scenario(
        words="JPEGs of 500 x 375, decoded and cropped by DALI on the processor", corpus="pictures", decode=True
    ),
    "sharded": Scenario(
        words="every second shard lies on the training host, the others at the storage (figure 10)",
        corpus="imagenet-like",
        halves=True,
    ),
    "resnet": Scenario(
        words="a step of 50 ms after each batch, about what ResNet-50 asks for (figures 5 and 6)",
        corpus="imagenet-like",
        step_ns=50 * _MS,
    ),
    "vgg": Scenario(
        words="a step of 150 ms after each batch, about what VGG-19 asks for (figure 9)",
        corpus="imagenet-like",
        step_ns=150 * _MS,
    ),
}


def contests_of(
    names: Sequence[str],
    rtts_ns: Sequence[int],
    *,
    payload_bytes: int,
    epochs: int,
    limit_ns: int,
    step_ns: int = 0,
) -> tuple[Contest, ...]:
    """Return the contests of every scenario at every round trip.

    Args:
        names: keys of `SCENARIOS`.
        rtts_ns: round trips of the links.
        payload_bytes: approximate payload of an epoch.
        epochs: epochs of each run.
        limit_ns: time limit of an epoch.
        step_ns: length of the step in scenarios without a step of their own; 0 for no step.
    """
    unknown = sorted(set(names) - set(SCENARIOS))
    if unknown:
        raise ConfigError(f"a scenario must be one of {', '.join(SCENARIOS)}, got {', '.join(unknown)}")
    have_one = [name for name in names if SCENARIOS[name].step_ns]
    if step_ns and have_one:
        raise ConfigError(
            f"a step must be chosen for scenarios without one, {have_one[0]} has "
            f"{format_duration(SCENARIOS[have_one[0]].step_ns)}, got {format_duration(step_ns)}"
        )
    size, step = _joined(format_size(payload_bytes)), _joined(format_duration(step_ns))
    return tuple(
        Contest(
            name=f"{name}{f'-step{step}' if step_ns else ''}-{size}-{_joined(format_duration(rtt_ns))}",
            words=SCENARIOS[name].words
            + (f", and a step of {format_duration(step_ns)} after each batch" if step_ns else ""),
            corpus=corpus_of(SCENARIOS[name].corpus, payload_bytes),
            rtt_ns=rtt_ns,
            batch=SCENARIOS[name].batch,
            epochs=epochs,
            step_ns=step_ns or SCENARIOS[name].step_ns,
            decode=SCENARIOS[name].decode,
            halves=SCENARIOS[name].halves,
            limit_ns=limit_ns,
        )
        for name in names
        for rtt_ns in rtts_ns
    )


def _joined(words: str) -> str:
    """Return the words as a part of a name."""
    return words.replace(" ", "")
