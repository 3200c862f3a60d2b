"""The cost of protection: figures from the samples of a delivery, and from the ciphers alone."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from emlio.wire.seal import CIPHERS, TAG_BYTES, StreamSeal, new_secret
from emlio_bench.harness.results import Figure, Run, figure, neighbours
from emlio_bench.harness.scenario import MESSAGE_BYTES, delivery_scenario

__all__ = ["cipher_speeds", "protection_figures"]

_SEALED_OF_CLEAR: Final = 0.6
_BOUND_AT: Final = delivery_scenario(100_000, 100_000).name
"""The scenario whose ratios have a bound: records of the size of photographs."""

_SPEED_NS: Final = 100_000_000


def protection_figures(runs: Sequence[Run], orders: Sequence[str], *, bounded: bool) -> tuple[Figure, ...]:
    """Return the ratios of sealed to clear within rounds, where both were measured.

    Args:
        runs: samples of a delivery run.
        orders: orders of the loader.
        bounded: whether the ratios have a bound.
    """
    figures: list[Figure] = []
    for scenario in dict.fromkeys(run.scenario for run in runs):
        own = [run for run in runs if run.scenario == scenario]
        for order in orders:
            pairs = neighbours(own, f"emlio-{order}-sealed", f"emlio-{order}")
            if pairs:
                figures.append(
                    figure(
                        f"sealed / clear, {scenario} records, {order} order",
                        "",
                        (sealed.value("bytes/s") / clear.value("bytes/s") for sealed, clear in pairs),
                        "Ratios are of neighbours in the same round; CPU is of both sides for a byte.",
                        at_least=_SEALED_OF_CLEAR if bounded and scenario == _BOUND_AT else None,
                    )
                )
    return tuple(figures)


def cipher_speeds(repeats: int) -> tuple[Figure, ...]:
    """Return the speed at which one core seals and opens, for each cipher.

    It is a limit of each sealed stream.
    """
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
        sealer, opener = (StreamSeal(cipher=cipher, secret=secret, session=1, stream=1) for _ in range(2))
        count, speed = _speed(seal)
        seals.append(speed)
        last = count - 1
        opens.append(_speed(open_last)[1])
    note = f"One core: messages of {MESSAGE_BYTES >> 20} MiB in memory, by processor time of the thread that does it."
    return (
        figure(f"one core seals, {cipher}", "GB/s", seals, note),
        figure(f"one core opens, {cipher}", "GB/s", opens, note),
    )


def _speed(act: Callable[[int], None]) -> tuple[int, float]:
    """Return the number of calls, and gigabytes per second of this thread's processor time."""
    begun, number = time.thread_time_ns(), 0
    while (spent := time.thread_time_ns() - begun) < _SPEED_NS:
        act(number)
        number += 1
    return number, number * MESSAGE_BYTES / spent
