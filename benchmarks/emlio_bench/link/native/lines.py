"""Both directions of an emulated link, moved by the library in C."""

import ctypes
import weakref
from collections.abc import Sequence

from emlio.errors import TransportError
from emlio_bench.link.contract import Held, LineCounts, LinkCounts, LinkSpec, Stretch
from emlio_bench.link.devices import End, count_unread

__all__ = ["CompiledWay"]


class _Counts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("packets", "wire_bytes", "overflowed", "refused", "latest_ns"))


class _Stretch(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("number", "mean_bytes", "most_bytes"))


class _CompiledLine:
    """One direction."""

    def __init__(self, library: ctypes.CDLL, source: End, target: End, spec: LinkSpec, own_ns: int) -> None:
        self._library = library
        self._source = source
        self.pointer = library.line_open(
            source.packets,
            target.packets,
            spec.delay_ns - own_ns // 2,
            spec.rate_bytes_per_s or 0,
            spec.held_bytes,
        )
        if not self.pointer:
            raise MemoryError("a line needs memory")
        weakref.finalize(self, library.line_close, self.pointer)

    def change(self, spec: LinkSpec, own_ns: int) -> None:
        self._library.line_change(
            self.pointer, max(spec.delay_ns - own_ns // 2, 0), spec.rate_bytes_per_s or 0, spec.held_bytes
        )

    def counts(self) -> LineCounts:
        found = _Counts()
        self._library.line_counts(self.pointer, ctypes.byref(found))
        return LineCounts(
            packets=found.packets,
            wire_bytes=found.wire_bytes,
            overflowed_packets=found.overflowed,
            unread_packets=count_unread(self._source),
            refused_packets=found.refused,
            latest_ns=found.latest_ns,
        )

    def held(self) -> tuple[Stretch, ...]:
        count = self._library.line_gauge(self.pointer)
        taken = (_Stretch * count)()
        self._library.line_take_stretches(self.pointer, taken, count)
        return tuple(Stretch(number=one.number, mean_bytes=one.mean_bytes, most_bytes=one.most_bytes) for one in taken)


class CompiledWay:
    """Both directions of the link. See `Way`.

    One thread uses it. While the library moves packets, other threads of Python run.
    """

    def __init__(self, library: ctypes.CDLL, storage: End, training: End, spec: LinkSpec, own_ns: int = 0) -> None:
        """Open both directions.

        Args:
            library: the loaded library.
            storage: device at the storage end.
            training: device at the training end.
            spec: specification of the link, without loss and jitter.
            own_ns: time that the link itself adds to a round trip.
        """
        _declare(library)
        self._library = library
        self._own_ns = own_ns
        self._to_training = _CompiledLine(library, storage, training, spec, own_ns)
        self._to_storage = _CompiledLine(library, training, storage, spec, own_ns)

    def forward(self, others: Sequence[int]) -> list[int]:
        """See `Way`."""
        watched = (ctypes.c_int * len(others))(*others)
        told = self._library.forward(self._to_training.pointer, self._to_storage.pointer, watched, len(others))
        if told < 0:
            raise TransportError(f"a link needs its devices and at most 8 other descriptors, got {list(others)}")
        return [descriptor for place, descriptor in enumerate(others) if told >> place & 1]

    def change(self, spec: LinkSpec) -> None:
        """See `Way`."""
        for line in (self._to_training, self._to_storage):
            line.change(spec, self._own_ns)

    def counts(self) -> LinkCounts:
        """See `Way`."""
        return LinkCounts(to_training=self._to_training.counts(), to_storage=self._to_storage.counts())

    def held(self) -> Held:
        """See `Way`."""
        return Held(to_training=self._to_training.held(), to_storage=self._to_storage.held())


def _declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of the functions in forward.c; it would cut a pointer to 32 bits."""
    line, number = ctypes.c_void_p, ctypes.c_int64
    for name, result, arguments in (
        ("line_open", line, (ctypes.c_int, ctypes.c_int, number, number, number)),
        ("line_close", None, (line,)),
        ("line_change", None, (line, number, number, number)),
        ("line_counts", None, (line, ctypes.POINTER(_Counts))),
        ("line_gauge", number, (line,)),
        ("line_take_stretches", None, (line, ctypes.POINTER(_Stretch), number)),
        ("forward", ctypes.c_int, (line, line, ctypes.POINTER(ctypes.c_int), ctypes.c_int)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
