"""A network namespace, and one TUN device in it, made by system calls.

The namespaces have no names. They live as long as somebody holds a descriptor of them, or runs in them; so whatever ends their
owner, the kernel takes them down, and no tool is needed to make them or to clean up.

Covers: namespace, device, addresses of links that share an end, what the kernel dropped before it was read. Does not cover:
moving packets (emlio.benchmarks.link.forwarder); other devices (emlio.benchmarks.link.netem_holder).
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.benchmarks.link.buffers import tune_buffers

__all__ = [
    "MOST_PLACES",
    "PREFIX_BITS",
    "STORAGE_DEVICE",
    "TUN_PATH",
    "End",
    "count_unread",
    "enter_namespace",
    "make_end",
    "make_namespace",
    "storage_address",
    "training_address",
    "training_device",
]

STORAGE_DEVICE: Final = "emlio-storage"
MOST_PLACES: Final = 10
"""How many links may share their training end: each is told from the others by its place, one digit."""

TUN_PATH: Final = "/dev/net/tun"
PREFIX_BITS: Final = 24

_libc = ctypes.CDLL(None, use_errno=True)
_unshare = _libc.unshare
_unshare.restype = ctypes.c_int
_unshare.argtypes = [ctypes.c_int]
_setns = _libc.setns
_setns.restype = ctypes.c_int
_setns.argtypes = [ctypes.c_int, ctypes.c_int]
_CLONE_NEWNET: Final = 0x4000_0000

# linux/if_tun.h and linux/sockios.h
_TUNSETIFF: Final = 0x4004_54CA
_TUNSETOFFLOAD: Final = 0x4004_54D0
_TUN_FLAGS: Final = 0x0001 | 0x1000 | 0x4000  # a TUN device, without packet information, with an offload header
_TUN_OFFLOADS: Final = 0x01 | 0x02 | 0x08  # checksums, TCP over IPv4, also with congestion notification
_SIOCSIFFLAGS: Final = 0x8914
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFNETMASK: Final = 0x891C
_SIOCSIFTXQLEN: Final = 0x8943
_IFF_UP: Final = 0x1
_LOOPBACK: Final = "lo"

_QUEUE_PACKETS: Final = 10_000
"""Packets the kernel keeps while the forwarder is not running; its default of 500 is soon full of acknowledgements."""
_NO_IPV6: Final = ("all", "default")
_COUNTERS: Final = "/proc/thread-self/net/dev"
_COUNTERS_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One side of a link.

    Attributes:
        name: of the device.
        packets: descriptor that packets are read from and written to, an offload header before each; never blocks.
        namespace: descriptor of the network namespace.
        counters: descriptor of what the kernel has counted for the devices there.
    """

    name: str
    packets: int
    namespace: int
    counters: int


# Links that share no end have namespaces of their own, so all can have the same addresses.
def storage_address(place: int) -> str:
    """Of the storage end of the link at this place."""
    return f"10.77.{place}.1"


def training_address(place: int) -> str:
    """Of the training end of the link at this place, which only this link leads to."""
    return f"10.77.{place}.2"


def training_device(place: int) -> str:
    """The name of its device there. A storage end has one device, `STORAGE_DEVICE`."""
    return f"emlio-training{place or ''}"


def enter_namespace(descriptor: int) -> None:
    """Move the calling thread, and no other, into a network namespace."""
    if _setns(descriptor, _CLONE_NEWNET) != 0:
        raise _error("setns")


def make_namespace(*, tuned: bool) -> int:
    """Move the calling thread into a new network namespace that has loopback, and hand out a descriptor of it.

    Args:
        tuned: whether TCP's buffers may become large in it.
    """
    if _unshare(_CLONE_NEWNET) != 0:
        raise _error("unshare")
    for group in _NO_IPV6:
        # Else each device sends router solicitations, which would be counted. Where it cannot be set they do no harm.
        with contextlib.suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{group}/disable_ipv6").write_text("1", encoding="ascii")
    if tuned:
        tune_buffers()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, _SIOCSIFFLAGS, _request(_LOOPBACK, struct.pack("=H", _IFF_UP)))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def make_end(name: str, address: str, *, tuned: bool = False, within: int | None = None) -> End:
    """Move the calling thread into a network namespace that has loopback, and make a device with this address there.

    Args:
        name: of the device.
        address: its IPv4 address; others of the same `PREFIX_BITS` bits are reached through it.
        tuned: whether TCP's buffers may become large in it, where it is a new one.
        within: descriptor of the namespace, which the device then keeps; None for a new one.
    """
    if within is None:
        namespace = make_namespace(tuned=tuned)
    else:
        enter_namespace(within)
        namespace = within
    packets = os.open(TUN_PATH, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(packets, _TUNSETIFF, _request(name, struct.pack("=H", _TUN_FLAGS)))
    fcntl.ioctl(packets, _TUNSETOFFLOAD, _TUN_OFFLOADS)
    mask = (0xFFFF_FFFF << (32 - PREFIX_BITS)) & 0xFFFF_FFFF
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, _SIOCSIFADDR, _request(name, _address(socket.inet_aton(address))))
        fcntl.ioctl(asked, _SIOCSIFNETMASK, _request(name, _address(mask.to_bytes(4, "big"))))
        fcntl.ioctl(asked, _SIOCSIFTXQLEN, _request(name, struct.pack("=i", _QUEUE_PACKETS)))
        fcntl.ioctl(asked, _SIOCSIFFLAGS, _request(name, struct.pack("=H", _IFF_UP)))
    counters = os.open(_COUNTERS, os.O_RDONLY | os.O_CLOEXEC)
    return End(name=name, packets=packets, namespace=namespace, counters=counters)


def count_unread(end: End) -> int:
    """Packets the kernel dropped because nobody read them in time."""
    # An open file of this kind stays with the namespace it was opened in, wherever the thread is that reads it.
    for line in os.pread(end.counters, _COUNTERS_BYTES, 0).decode("ascii").splitlines():
        name, _, columns = line.partition(":")
        if name.strip() == end.name:
            return int(columns.split()[11])
    raise OSError(f"{end.name} must be listed in /proc/net/dev of its namespace, it is not")


def _request(name: str, value: bytes) -> bytes:
    """A struct ifreq."""
    return struct.pack("16s24s", name.encode("ascii"), value)


def _address(four_bytes: bytes) -> bytes:
    """A struct sockaddr_in."""
    return struct.pack("=HH4s8x", socket.AF_INET, 0, four_bytes)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
