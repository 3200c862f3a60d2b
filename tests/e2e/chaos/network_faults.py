"""Faults carried out on the networks of a run.

Covers: one method for each way in which a proxy harms what passes, what ends it, when it began. Does not cover: other faults and
when one is possible (tests.e2e.chaos.injection), what happens to the bytes (emlio_testing.proxy).
"""

import time
from collections.abc import Callable, Mapping, Sequence

from emlio_testing.proxy import FaultProxy
from tests.e2e.chaos.agenda import Agenda
from tests.e2e.chaos.faults import Fault, Kind
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.injected import Injected

__all__ = ["NetworkFaults"]

_SLOWEST = 50_000
_CONTROL_BYTES = 4096
"""A flipped bit lies within so many bytes of a control connection; fewer than that are said in a run."""

_CREDIT_BYTES = 16_384


def _mask(fault: Fault) -> int:
    return 1 << fault.amount % 8


_ONCE: Mapping[Kind, tuple[str, Callable[[FaultProxy, Fault], None]]] = {
    Kind.NET_RESET: ("reset", lambda proxy, _: proxy.reset()),
    Kind.NET_HALF_OPEN: ("half_open", lambda proxy, _: proxy.half_open()),
    Kind.NET_CUT: ("cut_after", lambda proxy, fault: proxy.cut_after(fault.amount)),
    Kind.NET_FLIP_DATA: (
        "corrupt_after",
        lambda proxy, fault: proxy.corrupt_after(fault.amount, mask=_mask(fault)),
    ),
    Kind.NET_FLIP_CONTROL: (
        "corrupt_after",
        lambda proxy, fault: proxy.corrupt_after(fault.amount % _CONTROL_BYTES, control=True, mask=_mask(fault)),
    ),
    Kind.NET_FLIP_CREDIT: (
        "corrupt_after",
        lambda proxy, fault: proxy.corrupt_after(fault.amount % _CREDIT_BYTES, to_daemon=True, mask=_mask(fault)),
    ),
    Kind.LANE_RESET: ("cut_lane", lambda proxy, fault: proxy.cut_lane(_place(proxy, fault))),
    Kind.LANES_RESET: ("cut_lane", lambda proxy, _: proxy.cut_lanes()),
}
"""The faults of a moment: the name by which the proxy counts each, and the call for it."""


def _place(proxy: FaultProxy, fault: Fault) -> int:
    """Of one of its lanes."""
    return fault.amount % max(proxy.lanes, 1)


def _refuse_and_cut(proxy: FaultProxy, _: Fault) -> None:
    proxy.refuse()
    proxy.cut_lanes()


def _refuse_and_cut_one(proxy: FaultProxy, fault: Fault) -> None:
    proxy.refuse()
    proxy.cut_lane(_place(proxy, fault))


_FOR_A_WHILE: Mapping[Kind, tuple[bool, Callable[[FaultProxy, Fault], None]]] = {
    Kind.NET_DROP: (True, lambda proxy, _: proxy.drop()),
    Kind.NET_DROP_BOTH: (True, lambda proxy, _: proxy.drop()),
    Kind.NET_STALL: (True, lambda proxy, _: proxy.stall()),
    Kind.NET_STALL_BOTH: (True, lambda proxy, _: proxy.stall()),
    Kind.NET_SLOW: (False, lambda proxy, fault: proxy.slow(_SLOWEST + fault.amount)),
    Kind.LANE_AWAY: (False, _refuse_and_cut_one),
    Kind.LANES_AWAY: (True, _refuse_and_cut),
    Kind.LANES_AWAY_BOTH: (True, _refuse_and_cut),
    Kind.LANE_SILENT: (False, lambda proxy, fault: proxy.drop_lane(_place(proxy, fault))),
    Kind.DATA_DROP: (True, lambda proxy, _: proxy.drop(control=False)),
    Kind.DATA_DROP_BOTH: (True, lambda proxy, _: proxy.drop(control=False)),
    Kind.CREDIT_LATE: (False, lambda proxy, _: proxy.hold_credit()),
}
"""The faults that last: whether no record can come meanwhile, and the call for each."""


class NetworkFaults:
    """See the module. All methods by the run's thread."""

    def __init__(self, *, hosts: Sequence[Host], agenda: Agenda) -> None:
        self._hosts = hosts
        self._agenda = agenda

    def inject(self, event: Injected) -> None:
        """Carry it out."""
        kind = event.fault.kind
        if kind in _ONCE:
            self._hit(event, *_ONCE[kind])
        elif kind in _FOR_A_WHILE:
            self._bend(event, *_FOR_A_WHILE[kind])
        else:
            raise ValueError(f"{kind.label} is no fault of networks")

    def _hit(self, event: Injected, counted: str, harm: Callable[[FaultProxy, Fault], None]) -> None:
        host = self._hosts[event.fault.host]
        before = host.proxy.faults[counted]
        host.taken.add("network")  # a network that is healed forgets what was still to happen to it

        def happened() -> None:
            event.begun_ns = event.from_ns = time.monotonic_ns()
            host.taken.discard("network")

        self._agenda.when(lambda: host.proxy.faults[counted] > before, happened)
        harm(host.proxy, event.fault)

    def _bend(self, event: Injected, blocks: bool, harm: Callable[[FaultProxy, Fault], None]) -> None:
        fault = event.fault
        hosts = self._hosts if fault.kind.of_both else [self._hosts[fault.host]]
        for host in hosts:
            host.taken.add("network")
            if blocks:
                host.block("network")
            harm(host.proxy, fault)
        event.begun_ns = event.from_ns = time.monotonic_ns()

        def heal() -> None:
            for host in hosts:
                host.proxy.heal()
                host.unblock("network")
                host.taken.discard("network")

        self._agenda.after(fault.duration_s, heal)
