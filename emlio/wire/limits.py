"""The bounds that every message is checked against before memory is allocated for it.

Covers: the numbers and their reasons. Does not cover: limits of sessions and connections (the
daemon's).
"""

__all__ = [
    "CONTENT_PART_BYTES",
    "MATCH_DIGEST_BYTES",
    "MAX_CONTENT_BYTES",
    "MAX_CONTROL_BYTES",
    "MAX_DATASETS",
    "MAX_DATA_FRAME_BYTES",
    "MAX_DATA_HEADER_BYTES",
    "MAX_ENERGY_DEVICES",
    "MAX_GENERATIONS",
    "MAX_LANES",
    "MAX_LANE_COMMAND_BYTES",
    "MAX_MESSAGE_RECORDS",
    "MAX_NAME_LENGTH",
    "MAX_NOTE_LENGTH",
    "MAX_PAYLOAD_BYTES",
    "MAX_PREDICATE_CHARACTERS",
    "MAX_REASON",
    "MAX_SAMPLING_CHARACTERS",
    "MAX_SETTINGS_BYTES",
    "MAX_SHARDS",
    "MAX_STATUS_DATASETS",
    "MAX_STATUS_FAILURES",
    "MAX_STATUS_JOBS",
    "MAX_STATUS_RANKS",
    "MAX_STATUS_TEXT",
    "MAX_TREE_ENTRIES",
    "MOST_QUESTIONS",
    "MOST_RANGE_QUESTIONS",
    "NOTE_BYTES_PER_RECORDS",
    "RANGES_PER_REQUEST",
    "RANGE_BYTES_PER_REPLY",
    "READINGS_PER_ENERGY",
    "RECORDS_PER_REQUEST",
    "RECORDS_PER_SIZES",
    "RECORD_BYTES_PER_REPLY",
    "ROWS_IN_WELCOME",
    "ROWS_PER_PART",
    "TREE_DIGEST_BYTES",
    "VALUES_PER_ENERGY",
]

MAX_NAME_LENGTH = 255
"""The longest name of a dataset, shard, job or host: what file systems allow."""

ROWS_PER_PART = 4096
"""Shards described in one control message: about 350 kB. Longer lists travel in parts."""

ROWS_IN_WELCOME = 1024
"""Longest list that travels with the welcome, about 90 kB. This saves the round trip of asking for
it."""

MAX_CONTROL_BYTES = 4 << 20
"""The longest control message.

A part of a list with the longest allowed names fits, and no legitimate message is larger.

Decoding takes at most ten times as much memory: a text with one rare character takes four bytes for
each character, and an error's reason may repeat it.
"""

RECORDS_PER_SIZES = 1 << 18
"""Sizes of records in one control message: 1 MiB, small enough not to delay a heartbeat behind it
on a slow path."""

RECORDS_PER_REQUEST = 64
"""Records in one request for single records."""

RECORD_BYTES_PER_REPLY = 1 << 20
"""Bytes of records in one answer to it; a longer record travels in parts. As small as the sizes in
one message, for the same reason."""

NOTE_BYTES_PER_RECORDS = 1 << 20
"""Bytes told of these records beside their own: paths and labels of files, at most 4.4 kB each."""

MOST_QUESTIONS = 16
"""Questions that a rank may have open in a session: enough to hide the round trip, but few, since the
daemon keeps each answer (1 MiB) until the rank reads it."""

MOST_RANGE_QUESTIONS = 64
"""Questions for ranges of files that may be open in a session, beside those: a program that reads small files one by one
has a question for each, and they must fill a long path. Their answers have at most 64 MiB."""

RANGES_PER_REQUEST = 1024
"""Ranges of files in one such question: an answer with files of 1 kB is full."""

RANGE_BYTES_PER_REPLY = MAX_CONTROL_BYTES - (16 << 10)
"""Bytes of ranges in one answer, whose message is then as long as one may be: each answer costs both sides half a millisecond
of processor time besides its bytes. It has RECORD_BYTES_PER_REPLY at least, unless all that was asked for is less."""

TREE_DIGEST_BYTES = 16
"""The digest of the entries of a dataset's folder."""

MAX_TREE_ENTRIES = 1 << 24
"""Entries of a dataset's folder that are listed: each takes some 50 bytes at the rank, and 150 at the daemon."""

MAX_REASON = 1000
"""The longest reason why there is no answer."""

MAX_ENERGY_DEVICES = 256
"""Devices of one node whose energy is counted: sockets, memories and GPUs."""

MAX_NOTE_LENGTH = 1024
"""The longest note on how to read a device's figures. The notes of all devices together have at
most 1 MiB."""

READINGS_PER_ENERGY = 4096
"""Energy readings in one control message: seven minutes at ten per second."""

VALUES_PER_ENERGY = 1 << 16
"""Numbers in these readings, of at most nine bytes each: 576 KiB, small enough not to delay a
heartbeat behind them on a slow path."""

MAX_SETTINGS_BYTES = 1 << 20
"""The longest settings of a format, such as the columns of a table."""

MAX_GENERATIONS = 64
"""Generations of a dataset that a welcome names."""

MAX_STATUS_DATASETS = 256
MAX_STATUS_JOBS = 256
MAX_STATUS_RANKS = 1024
MAX_STATUS_FAILURES = 64
MAX_STATUS_TEXT = 1024
"""Rows of a status reply, and the longest reason of a failure: with the longest names, in rare
characters, all of it fits into MAX_CONTROL_BYTES. Usually it takes 300 bytes for each rank."""

MAX_SHARDS = 1 << 22
"""Four million files in one dataset."""

MAX_LANES = 64
"""Connections of one rank to one daemon: 64 stock socket buffers cover 10 Gbit/s at 180 ms."""

MAX_DATASETS = 256
"""Datasets of a mixture. A rank has a session with each daemon of each of them."""

MAX_MADE = 64
"""Kinds of loaders of a process, closed ones too, that an offer tells of."""

MAX_OPTIONS = 16
"""Options in an offer that the daemon only compares."""

MAX_SAMPLING_CHARACTERS = 1 << 16
"""The text of a sampling. A mixture of 64 datasets with ten changes of their weights takes 10,000."""

CONTENT_PART_BYTES = 1 << 20
"""Bytes of a set of records or of weights in one control message, before they are compressed."""

MAX_PREDICATE_CHARACTERS = 1 << 14
"""The text of a predicate over records."""

MATCH_DIGEST_BYTES = 16
"""The digest of which records of a shard match a predicate."""

MAX_CONTENT_BYTES = 256 << 20
"""The longest content that a sampling names: a bit for each of two billion records, or a weight for each of 64 million."""

MAX_LANE_COMMAND_BYTES = 4096
"""The longest input from a lane's peer: ZeroMQ's own commands, all shorter than a kilobyte."""

MAX_MESSAGE_RECORDS = 1 << 17
"""Records in one data message: a message of 1 MiB holds 65,536 of the smallest frames."""

MAX_DATA_HEADER_BYTES = 2 << 20
"""MAX_MESSAGE_RECORDS lengths and checksums of four bytes each, and half as much again."""

MAX_PAYLOAD_BYTES = (1 << 31) - 1024
"""The longest payload: 1 KiB less than 2 GiB.

A single record is never split, so this is also the longest record.

With the tag of a sealed payload it stays below 2 GiB, the most that the ciphers take at once.
"""

MAX_DATA_FRAME_BYTES = MAX_PAYLOAD_BYTES + MAX_DATA_HEADER_BYTES + 1024
"""A payload, its tag, its header and the stamp."""
