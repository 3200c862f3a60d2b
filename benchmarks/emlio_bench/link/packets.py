"""Packets of a TUN device with offloads, which hold many TCP segments each.

The kernel leaves the work of a network card to the device: splitting up to 64 kB into segments, and
filling in checksums. A device that receives such a packet may pass it on unchanged, so on a link
without loss no packet is split.

Covers: the number of segments in a packet, and removing some of them. Does not cover: IPv6, which
the links do not carry; UDP, where each packet is one segment.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["OFFLOAD_BYTES", "count_segments", "count_wire_bytes", "without_segments"]

# linux/virtio_net.h, struct virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset.
_OFFLOAD: Final = struct.Struct("=BBHHHH")
OFFLOAD_BYTES: Final = _OFFLOAD.size
_ONE_SEGMENT: Final = 0
_TCP_IPV4: Final = 1
_CONGESTION_FLAG: Final = 0x80
_U16: Final = struct.Struct("!H")
_U32: Final = struct.Struct("!I")
_FIN_PUSH: Final = 0x09
_WINDOW_REDUCED: Final = 0x80


def _segment_bytes(packet: bytes) -> int:
    """Return the payload of a full segment, or 0 if the packet is one segment."""
    if packet[1] & ~_CONGESTION_FLAG != _TCP_IPV4:
        return 0
    full: int = _OFFLOAD.unpack_from(packet)[3]
    return full


def _headers_bytes(packet: bytes) -> int:
    """Return the length of the IP and TCP headers together.

    The field hdr_len is not used: it tells how much is contiguous in the kernel, which may be more.
    """
    ip = (packet[OFFLOAD_BYTES] & 0x0F) * 4
    return ip + (packet[OFFLOAD_BYTES + ip + 12] >> 4) * 4


def count_segments(packet: bytes) -> int:
    """Return the number of segments of a packet on a wire."""
    full = _segment_bytes(packet)
    if full == 0:
        return 1
    return max(-(-(len(packet) - OFFLOAD_BYTES - _headers_bytes(packet)) // full), 1)


def count_wire_bytes(packet: bytes) -> int:
    """Return the bytes of all segments on a wire, each with its own headers."""
    more = count_segments(packet) - 1
    size = len(packet) - OFFLOAD_BYTES
    return size + more * _headers_bytes(packet) if more else size


def without_segments(packet: bytes, lost: Sequence[int]) -> list[bytes]:
    """Return the packets that remain after losses: one for each run of adjacent segments.

    Args:
        packet: the packet, with its offload header.
        lost: indexes of the lost segments, ascending.
    """
    count = count_segments(packet)
    return [_run(packet, start, stop, count) for start, stop in _runs(count, lost)]


def _runs(count: int, lost: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for place in (*lost, count):
        if place > start:
            yield start, place
        start = place + 1


def _run(packet: bytes, start: int, stop: int, count: int) -> bytes:
    """Return segments [start, stop) as one packet."""
    if stop - start == count:
        return packet
    full, size = _segment_bytes(packet), _headers_bytes(packet)
    payload_at = OFFLOAD_BYTES + size
    payload = packet[payload_at + start * full : min(payload_at + stop * full, len(packet))]
    headers = bytearray(packet[OFFLOAD_BYTES:payload_at])
    ip = (headers[0] & 0x0F) * 4
    old_length = len(packet) - OFFLOAD_BYTES - ip
    new_length = size + len(payload) - ip

    _U16.pack_into(headers, 2, size + len(payload))
    _U16.pack_into(headers, 4, (_read(headers, 4) + start) & 0xFFFF)
    _U16.pack_into(headers, 10, 0)
    _U16.pack_into(headers, 10, _fold(sum(_read(headers, at) for at in range(0, ip, 2))) ^ 0xFFFF)

    _U32.pack_into(headers, ip + 4, (_U32.unpack_from(headers, ip + 4)[0] + start * full) & 0xFFFF_FFFF)
    if start > 0:
        headers[ip + 13] &= ~_WINDOW_REDUCED
    if stop < count:
        headers[ip + 13] &= ~_FIN_PUSH
    # This is not a complete checksum yet, but the sum of addresses, protocol and length. The
    # receiving kernel would continue from it.
    _U16.pack_into(headers, ip + 16, _fold(_read(headers, ip + 16) + (old_length ^ 0xFFFF) + new_length))

    flags, kind, _, _, sum_start, sum_at = _OFFLOAD.unpack_from(packet)
    if stop - start == 1:
        offload = _OFFLOAD.pack(flags, _ONE_SEGMENT, 0, 0, sum_start, sum_at)
    else:
        offload = _OFFLOAD.pack(flags, kind, size, full, sum_start, sum_at)
    return offload + headers + payload


def _read(headers: bytearray, at: int) -> int:
    value: int = _U16.unpack_from(headers, at)[0]
    return value


def _fold(total: int) -> int:
    """Fold a sum into 16 bits, in ones' complement."""
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total
