"""The bounds every message is held to before anything is allocated for it.

Covers: the numbers and why they are what they are. Does not cover: limits of sessions and connections (the daemon's).
"""

__all__ = [
    "MAX_CONTROL_BYTES",
    "MAX_DATA_FRAME_BYTES",
    "MAX_DATA_HEADER_BYTES",
    "MAX_ENERGY_DEVICES",
    "MAX_LANES",
    "MAX_LANE_COMMAND_BYTES",
    "MAX_MESSAGE_RECORDS",
    "MAX_NAME_LENGTH",
    "MAX_NOTE_LENGTH",
    "MAX_PAYLOAD_BYTES",
    "MAX_SHARDS",
    "READINGS_PER_ENERGY",
    "RECORDS_PER_SIZES",
    "ROWS_IN_WELCOME",
    "ROWS_PER_PART",
    "VALUES_PER_ENERGY",
]

MAX_NAME_LENGTH = 255
"""Of a dataset, a shard, a job, a host: what file systems allow a name."""

ROWS_PER_PART = 4096
"""Shards described in one control message: about 350 kB, so a list of any length travels in parts."""

ROWS_IN_WELCOME = 1024
"""Lists up to this length travel with the welcome, about 90 kB: to ask for one takes a round trip."""

MAX_CONTROL_BYTES = 4 << 20
"""A part of a list with the longest names allowed fits; nothing legitimate is larger. Decoding takes at most ten times as much
memory: a text with one rare character takes four bytes for each of its characters, and a reason may repeat it."""

RECORDS_PER_SIZES = 1 << 18
"""Sizes of records in one control message: 1 MiB, little enough that a heartbeat behind it is not late on a slow path."""

MAX_ENERGY_DEVICES = 256
"""Of one node whose energy is counted: sockets, memories and GPUs."""

MAX_NOTE_LENGTH = 1024
"""Of what a reader of a device's figures must know. Those of all devices together have 1 MiB at most."""

READINGS_PER_ENERGY = 4096
"""Readings of energy in one control message: seven minutes of ten a second."""

VALUES_PER_ENERGY = 1 << 16
"""Numbers in these readings, of nine bytes at most: 576 KiB, so that a heartbeat behind them is not late on a slow path."""

MAX_SHARDS = 1 << 22
"""Four million files in one dataset."""

MAX_LANES = 64
"""Connections of one rank to one daemon: 64 stock socket buffers cover 10 Gbit/s at 180 ms."""

MAX_LANE_COMMAND_BYTES = 4096
"""What one who connects to a lane may say: ZeroMQ's own commands, of which none has a kilobyte."""

MAX_MESSAGE_RECORDS = 1 << 17
"""Records in one data message: a message of 1 MiB holds 65,536 of the smallest frames."""

MAX_DATA_HEADER_BYTES = 1 << 20
"""MAX_MESSAGE_RECORDS lengths of four bytes, and half as much again."""

MAX_PAYLOAD_BYTES = (1 << 31) - 1024
"""A single record is never cut, so this is also the longest record that can be served: 1 KiB less than 2 GiB. With the tag of a
sealed one it is still below 2 GiB, more than which ciphers do not take at once."""

MAX_DATA_FRAME_BYTES = MAX_PAYLOAD_BYTES + MAX_DATA_HEADER_BYTES + 1024
"""A payload, its tag, its header and the header's length."""
