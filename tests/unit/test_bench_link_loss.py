import itertools
import struct

import pytest

from emlio_bench.link.loss import LossDraw
from emlio_bench.link.packets import OFFLOAD_BYTES, count_segments, count_wire_bytes, without_segments

FULL = 1448
TCP_BYTES = 32
HEADERS = 20 + TCP_BYTES
ACK, PUSH, FIN, REDUCED = 0x10, 0x08, 0x01, 0x80
FIRST_SEQUENCE = 0xFFFF_F000  # wraps inside the packet


def sum16(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def addresses_sum(tcp_bytes: int) -> int:
    return sum16(struct.pack("!4s4sHH", bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2]), 6, tcp_bytes))


def make_packet(payload: bytes, *, full: int = FULL, flags: int = ACK | PUSH | FIN | REDUCED) -> bytes:
    """What a TUN device hands over for a TCP segment that the kernel left whole."""
    whole = full == 0
    offload = struct.pack("=BBHHHH", 1, 0 if whole else 1, len(payload), full, 20, 16)
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, HEADERS + len(payload), 0xFFFE, 0x4000, 64, 6, 0, b"\n\x4d\0\1", b"\n\x4d\0\2"
    )
    ip = ip[:10] + struct.pack("!H", sum16(ip) ^ 0xFFFF) + ip[12:]
    tcp = struct.pack("!HHIIBBHHH", 5555, 40000, FIRST_SEQUENCE, 7, (TCP_BYTES // 4) << 4, flags, 500, 0, 0)
    tcp = tcp[:16] + struct.pack("!H", addresses_sum(TCP_BYTES + len(payload))) + tcp[18:]
    return offload + ip + tcp + bytes(range(12)) + payload


def payload_of(segments: int, last: int = FULL) -> bytes:
    size = (segments - 1) * FULL + last
    return bytes(number * 7 % 251 for number in range(size))


def placed(piece: bytes) -> tuple[int, bytes]:
    """Where a piece's payload lies in the stream, and the payload."""
    sequence = struct.unpack_from("!I", piece, OFFLOAD_BYTES + 24)[0]
    return (sequence - FIRST_SEQUENCE) % 2**32, piece[OFFLOAD_BYTES + HEADERS :]


# ---- which ----------------------------------------------------------------------------------------------------------


def drawn(draw: LossDraw, counts: list[int]) -> list[int]:
    lost: list[int] = []
    seen = 0
    for count in counts:
        lost += [seen + place for place in draw.draw(count)]
        seen += count
    return lost


def test_nothing_is_lost_where_no_loss_was_asked_for() -> None:
    assert drawn(LossDraw(0.0, 1, "a"), [1000] * 100) == []


@pytest.mark.parametrize("share", [0.001, 0.01, 0.3])
def test_the_share_that_is_lost_is_the_one_asked_for(share: float) -> None:
    draw = LossDraw(share, 7, "a")
    count = 400_000
    lost = drawn(draw, [40] * (count // 40))
    # Four standard deviations of as many independent draws.
    assert abs(len(lost) - share * count) < 4 * (count * share * (1 - share)) ** 0.5
    assert draw.lost == len(lost)
    neighbours = sum(1 for one, other in itertools.pairwise(lost) if other == one + 1)
    assert abs(neighbours - share * len(lost)) < 4 * (len(lost) * share) ** 0.5 + 1


def test_how_segments_are_packed_does_not_change_which_are_lost() -> None:
    one_by_one = drawn(LossDraw(0.05, 7, "a"), [1] * 4000)
    assert one_by_one == drawn(LossDraw(0.05, 7, "a"), [45, 1, 14] * 66 + [40])
    assert len(one_by_one) > 100


def test_seed_and_direction_change_which_are_lost() -> None:
    found = [drawn(LossDraw(0.05, seed, name), [4000]) for seed, name in ((1, "a"), (1, "a"), (1, "b"), (2, "a"))]
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0] != found[3]


# ---- how many -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("segments", "last"), [(1, 5), (2, 1), (3, FULL), (45, 100)])
def test_the_segments_of_a_packet_are_counted_with_the_last_part_one(segments: int, last: int) -> None:
    packet = make_packet(payload_of(segments, last))
    assert count_segments(packet) == segments
    assert count_wire_bytes(packet) == segments * HEADERS + (segments - 1) * FULL + last


@pytest.mark.parametrize("payload", [b"", b"x" * FULL])
def test_a_packet_without_a_segment_size_is_one_segment(payload: bytes) -> None:
    packet = make_packet(payload, full=0)
    assert count_segments(packet) == 1
    assert count_wire_bytes(packet) == HEADERS + len(payload)


def test_congestion_notification_does_not_hide_the_segments() -> None:
    packet = bytearray(make_packet(payload_of(3)))
    packet[1] |= 0x80
    assert count_segments(bytes(packet)) == 3


# ---- what remains ---------------------------------------------------------------------------------------------------

LOSSES = [[0], [4], [2], [0, 4], [1, 2], [0, 2, 4], [1, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("lost", LOSSES)
def test_exactly_the_lost_segments_are_missing(lost: list[int]) -> None:
    payload = payload_of(5, 99)
    pieces = without_segments(make_packet(payload), lost)
    found = dict(map(placed, pieces))
    assert sum(count_segments(piece) for piece in pieces) == 5 - len(lost)
    covered: list[int] = []
    for place, data in found.items():
        assert data == payload[place : place + len(data)]
        covered += [number for number in range(5) if place <= number * FULL < place + len(data)]
    assert covered == [number for number in range(5) if number not in lost]


@pytest.mark.parametrize("lost", LOSSES)
def test_headers_of_what_remains_are_right(lost: list[int]) -> None:
    for piece in without_segments(make_packet(payload_of(5, 99)), lost):
        ip, tcp = piece[OFFLOAD_BYTES : OFFLOAD_BYTES + 20], piece[OFFLOAD_BYTES + 20 :]
        place, data = placed(piece)
        assert sum16(ip) == 0xFFFF  # so the kernel finds the checksum good
        length, number = struct.unpack_from("!HH", ip, 2)
        assert length == len(ip) + len(tcp)
        assert number == (0xFFFE + place // FULL) & 0xFFFF
        assert struct.unpack_from("!H", tcp, 16)[0] == addresses_sum(len(tcp))
        last = place + len(data) == 4 * FULL + 99
        assert tcp[13] == ACK | (PUSH | FIN if last else 0) | (REDUCED if place == 0 else 0)
        assert tcp[20:TCP_BYTES] == bytes(range(12))
        flags, kind, _, full, start, at = struct.unpack_from("=BBHHHH", piece)
        assert (flags, start, at) == (1, 20, 16)
        assert (kind, full) == ((1, FULL) if len(data) > FULL else (0, 0))


def test_a_packet_that_loses_nothing_stays_as_it_is_and_one_that_loses_all_is_gone() -> None:
    packet = make_packet(payload_of(3))
    assert without_segments(packet, []) == [packet]
    assert without_segments(packet, [0, 1, 2]) == []
    assert without_segments(make_packet(b"", full=0), [0]) == []
