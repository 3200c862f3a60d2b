"""What protection costs: figures made of a delivery's samples, and of the ciphers alone.

Covers: ratios between sealed, clear and CURVE with their bounds, what the cipher alone takes of this processor. Does not cover:
taking the samples (emlio.benchmarks.loader).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from emlio.benchmarks.meter import Measurement
from emlio.benchmarks.results import Figure, Sample
from emlio.benchmarks.scenario import MESSAGE_BYTES, delivery_scenario
from emlio.wire.seal import CIPHERS, TAG_BYTES, LaneSeal, new_secret

__all__ = ["cipher_speeds", "protection_figures", "sealing_figures"]

_SEALED_OF_CLEAR: Final = 0.6
_SEALED_OF_CURVE: Final = 2.5
_BOUND_AT: Final = delivery_scenario(100_000, 100_000).name
"""The scenario whose ratios have bounds: photographs."""

_SPEED_NS: Final = 100_000_000


def protection_figures(samples: Sequence[Sample], orders: Sequence[str], *, bounded: bool) -> tuple[Figure, ...]:
    """Sealed beside clear and beside CURVE, of neighbours in a round, where both were measured.

    Args:
        samples: of a delivery run.
        orders: the loader's.
        bounded: whether the ratios must keep their bounds.
    """
    figures: list[Figure] = []
    for scenario in dict.fromkeys(sample.scenario for sample in samples):
        own = [sample for sample in samples if sample.scenario == scenario]
        for order in orders:
            sealed = f"emlio-{order}-sealed"
            for other, what, least in (
                (f"emlio-{order}", "clear", _SEALED_OF_CLEAR),
                (f"emlio-{order}-curve", "CURVE", _SEALED_OF_CURVE),
            ):
                ratios = tuple(
                    ours.bytes_per_s / theirs.bytes_per_s for ours, theirs in _neighbours(own, sealed, other)
                )
                if ratios:
                    figures.append(
                        Figure(
                            name=f"sealed / {what}, {scenario} records, {order} order",
                            unit="",
                            values=ratios,
                            at_least=least if bounded and scenario == _BOUND_AT else None,
                            note="Ratios of payload a second are of neighbours in the same round.",
                        )
                    )
    return tuple(figures)


def sealing_figures(samples: Sequence[Sample], orders: Sequence[str], speeds: Sequence[Figure]) -> tuple[Figure, ...]:
    """How much of the processor sealing takes, beside what the cipher alone would take.

    Where both sides share their cores, throughput cannot be better than the second of these. Background load slows clear and
    sealed alike, so they wander less than throughput.

    Args:
        samples: of a delivery run.
        orders: the loader's.
        speeds: what `cipher_speeds` found.
    """
    seconds = {figure.name: 1 / statistics.median(figure.values) for figure in speeds}
    figures: list[Figure] = []
    own = [sample for sample in samples if sample.scenario == _BOUND_AT]
    for order in orders:
        pairs = _neighbours(own, f"emlio-{order}-sealed", f"emlio-{order}")
        if not pairs:
            continue
        ciphers = [seconds[_name("seals", sealed)] + seconds[_name("opens", sealed)] for sealed, _ in pairs]
        what = f"{_BOUND_AT} records, {order} order"
        figures += [
            Figure(
                name=f"CPU of clear / of sealed, {what}",
                unit="",
                values=tuple(_cpu_s_per_gb(clear) / _cpu_s_per_gb(sealed) for sealed, clear in pairs),
            ),
            Figure(
                name=f"the same if the cipher were all, {what}",
                unit="",
                values=tuple(
                    _cpu_s_per_gb(clear) / (_cpu_s_per_gb(clear) + cipher)
                    for (_, clear), cipher in zip(pairs, ciphers, strict=True)
                ),
                note="CPU is of both sides for a byte. If the cipher were all: as clear, and the time one core seals and opens.",
            ),
        ]
    return tuple(figures)


def _neighbours(samples: Sequence[Sample], of: str, to: str) -> list[tuple[Measurement, Measurement]]:
    other = {sample.round: sample.measured for sample in samples if sample.subject == to}
    return [
        (sample.measured, other[sample.round]) for sample in samples if sample.subject == of and sample.round in other
    ]


def _cpu_s_per_gb(measured: Measurement) -> float:
    return (measured.sender_cpu_ns + measured.receiver_cpu_ns) / measured.payload_bytes


def _name(what: str, measured: Measurement) -> str:
    return f"one core {what}, {measured.protection}"


def cipher_speeds(repeats: int) -> tuple[Figure, ...]:
    """How many bytes one core seals and opens in a second, by cipher: a limit of each sealed stream."""
    return tuple(figure for cipher in CIPHERS for figure in _cipher_speeds(cipher, repeats))


def _cipher_speeds(cipher: str, repeats: int) -> tuple[Figure, Figure]:
    secret, header = new_secret(), bytes(64)
    payload, sealed = bytearray(MESSAGE_BYTES), bytearray(MESSAGE_BYTES + TAG_BYTES)

    def seal(number: int) -> None:
        sealer.seal(number, header, payload, sealed)

    def open_last(_: int) -> None:
        opener.open(last, header, sealed, payload)

    seals: list[float] = []
    opens: list[float] = []
    for _ in range(repeats):
        sealer, opener = (LaneSeal(cipher=cipher, secret=secret, lane=0) for _ in range(2))
        count, speed = _speed(seal)
        seals.append(speed)
        last = count - 1
        opens.append(_speed(open_last)[1])
    note = f"One core: messages of {MESSAGE_BYTES >> 20} MiB in memory, by processor time of the thread that does it."
    return (
        Figure(name=f"one core seals, {cipher}", unit="GB/s", values=tuple(seals), note=note),
        Figure(name=f"one core opens, {cipher}", unit="GB/s", values=tuple(opens), note=note),
    )


def _speed(act: Callable[[int], None]) -> tuple[int, float]:
    """How often, and gigabytes in a second of this thread's processor time."""
    begun, number = time.thread_time_ns(), 0
    while (spent := time.thread_time_ns() - begun) < _SPEED_NS:
        act(number)
        number += 1
    return number, number * MESSAGE_BYTES / spent
