"""A network namespace and one TUN device in it, made by system calls.

The namespaces have no names. A namespace lives as long as a process runs in it or holds a
descriptor of it. However its owner ends, the kernel removes the namespace, and no tool is needed to
make it or to clean up.
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
"""The most links that may share their training end. The place of a link in its names is one digit.
"""

TUN_PATH: Final = "/dev/net/tun"
PREFIX_BITS: Final = 24

_TUNED_BYTES: Final = 64 << 20
"""Memory that TCP may have for a connection at a tuned end."""
_SYSCTL: Final = Path("/proc/sys/net/ipv4")
"""Its files show the settings of the calling thread's network namespace."""

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
_TUN_FLAGS: Final = 0x0001 | 0x1000 | 0x4000  # a TUN device, no packet information, an offload header
_TUN_OFFLOADS: Final = 0x01 | 0x02 | 0x08  # checksums, TCP over IPv4, TCP with ECN
_SIOCSIFFLAGS: Final = 0x8914
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFNETMASK: Final = 0x891C
_SIOCSIFTXQLEN: Final = 0x8943
_IFF_UP: Final = 0x1
_LOOPBACK: Final = "lo"

_QUEUE_PACKETS: Final = 10_000
"""Packets that the kernel queues while the forwarder does not run.

The kernel's default of 500 soon fills up with acknowledgements.
"""
_NO_IPV6: Final = ("all", "default")
_COUNTERS: Final = "/proc/thread-self/net/dev"
_COUNTERS_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a link.

    Attributes:
        name: name of the device.
        packets: non-blocking descriptor to read and write packets, each after an offload header.
        namespace: descriptor of the network namespace.
        counters: descriptor of the kernel's counters of the devices in the namespace.
    """

    name: str
    packets: int
    namespace: int
    counters: int


# Links that share no end have namespaces of their own, so they can use the same addresses.
def storage_address(place: int) -> str:
    """Return the address of the storage end of the link at this place."""
    return f"10.77.{place}.1"


def training_address(place: int) -> str:
    """Return the address of the training end of the link at this place.

    No other link leads to this address.
    """
    return f"10.77.{place}.2"


def training_device(place: int) -> str:
    """Return the name of the link's device at the training end.

    A storage end has one device, `STORAGE_DEVICE`.
    """
    return f"emlio-training{place or ''}"


def enter_namespace(descriptor: int) -> None:
    """Move the calling thread, and no other, into a network namespace."""
    if _setns(descriptor, _CLONE_NEWNET) != 0:
        raise _error("setns")


def make_namespace(*, tuned: bool) -> int:
    """Move the calling thread into a new network namespace with loopback; return its descriptor.

    Args:
        tuned: whether TCP's buffers may become large in the namespace.
    """
    if _unshare(_CLONE_NEWNET) != 0:
        raise _error("unshare")
    for group in _NO_IPV6:
        # Otherwise each device sends router solicitations, which would be counted. They do no harm
        # where this setting cannot be changed.
        with contextlib.suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{group}/disable_ipv6").write_text("1", encoding="ascii")
    if tuned:
        for setting in ("tcp_wmem", "tcp_rmem"):
            least, usual, _ = (_SYSCTL / setting).read_text(encoding="ascii").split()
            (_SYSCTL / setting).write_text(f"{least} {usual} {_TUNED_BYTES}", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, _SIOCSIFFLAGS, _request(_LOOPBACK, struct.pack("=H", _IFF_UP)))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def make_end(name: str, address: str, *, tuned: bool = False, within: int | None = None) -> End:
    """Move the calling thread into a network namespace with loopback, and make a device there.

    Args:
        name: name of the device.
        address: IPv4 address of the device. Other addresses with the same `PREFIX_BITS` bits are
            reached through it.
        tuned: whether TCP's buffers may become large in a new namespace.
        within: descriptor of an existing namespace, which the device then keeps; None for a new
            one.
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
    """Return how many packets the kernel dropped because they were not read in time."""
    # This file stays bound to the namespace it was opened in, whichever thread reads it.
    for line in os.pread(end.counters, _COUNTERS_BYTES, 0).decode("ascii").splitlines():
        name, _, columns = line.partition(":")
        if name.strip() == end.name:
            return int(columns.split()[11])
    raise OSError(f"{end.name} must be listed in /proc/net/dev of its namespace, it is not")


def _request(name: str, value: bytes) -> bytes:
    """Pack a struct ifreq."""
    return struct.pack("16s24s", name.encode("ascii"), value)


def _address(four_bytes: bytes) -> bytes:
    """Pack a struct sockaddr_in."""
    return struct.pack("=HH4s8x", socket.AF_INET, 0, four_bytes)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
