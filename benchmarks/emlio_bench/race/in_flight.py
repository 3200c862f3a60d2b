"""The bytes of a subject in transit over the link during its epochs.

Covers: the mean and the maximum of the stretches within epochs. Pure. Does not cover: recording
(emlio_bench.link.held).
"""

from collections.abc import Sequence

from emlio_bench.link.held import STRETCH_NS, Stretch
from emlio_bench.race.order import Epoch
from emlio_bench.race.outcome import InFlight

__all__ = ["in_flight"]


def in_flight(stretches: Sequence[Stretch], epochs: Sequence[Epoch]) -> InFlight | None:
    """Return the bytes in transit in one direction; None if nothing was recorded in any epoch.

    Args:
        stretches: all stretches.
        epochs: epochs. The time between them does not count; a stretch partly in an epoch counts in
            proportion.
    """
    inside = [
        (stretch, span_ns)
        for stretch in stretches
        if (span_ns := sum(_common_ns(stretch.number * STRETCH_NS, epoch) for epoch in epochs)) > 0
    ]
    if not inside:
        return None
    return InFlight(
        mean_bytes=sum(stretch.mean_bytes * span_ns for stretch, span_ns in inside)
        // sum(span_ns for _, span_ns in inside),
        peak_bytes=max(stretch.most_bytes for stretch, _ in inside),
    )


def _common_ns(begun_ns: int, epoch: Epoch) -> int:
    return max(min(begun_ns + STRETCH_NS, epoch.ended_ns) - max(begun_ns, epoch.begun_ns), 0)
