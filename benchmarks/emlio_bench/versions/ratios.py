"""The figures of this version beside another one, from the samples of a delivery.

Covers: ratios of throughput and of processor time within rounds. Does not cover: taking the samples
(emlio_bench.subjects.loader).
"""

from collections.abc import Sequence
from typing import Final

from emlio_bench.harness.report import label
from emlio_bench.harness.results import Figure, Sample, neighbours
from emlio_bench.versions.checkout import OTHER

__all__ = ["version_figures"]

_NOTE: Final = "Ratios of this checkout to the other are of neighbours in the same round."


def version_figures(samples: Sequence[Sample]) -> tuple[Figure, ...]:
    """Return the ratios of all subjects that were measured with both versions.

    Args:
        samples: samples of a delivery run.
    """
    figures: list[Figure] = []
    for scenario in dict.fromkeys(sample.scenario for sample in samples):
        own = [sample for sample in samples if sample.scenario == scenario]
        for subject in dict.fromkeys(sample.subject for sample in own):
            pairs = neighbours(own, subject, f"{subject}@{OTHER}")
            if not pairs:
                continue
            what = f"{scenario} records, {label(subject)}"
            rates = tuple(this.bytes_per_s / other.bytes_per_s for this, other in pairs)
            cpu = tuple(this.cpu_s_per_gb / other.cpu_s_per_gb for this, other in pairs)
            figures += [
                Figure(name=f"throughput, this / other, {what}", unit="", values=rates, note=_NOTE),
                Figure(name=f"CPU of a byte, this / other, {what}", unit="", values=cpu, note=_NOTE),
            ]
    return tuple(figures)
