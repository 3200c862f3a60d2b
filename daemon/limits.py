"""The most that one client may have of a daemon, and all of them together.

Covers: the numbers and why they are what they are (docs/security.md has them in one table). Does not cover: the sizes of messages
(emlio.wire.limits), memory for records (emlio.daemon.config), those who wait for a rank (emlio.daemon.claims).
"""

__all__ = [
    "MOST_ANSWERS",
    "MOST_ANSWER_BYTES_EACH",
    "MOST_CATALOG_BYTES",
    "MOST_CATALOG_BYTES_EACH",
    "MOST_LANES",
    "MOST_LANES_EACH",
    "MOST_OPEN_QUESTIONS",
    "MOST_QUEUED_MESSAGES",
    "MOST_REST_NS",
    "MOST_SESSIONS",
    "MOST_SESSIONS_EACH",
    "MOST_TURN_NS",
    "UNREAD_MS",
]

MOST_SESSIONS_EACH = 4096
"""Of one client's key, or of one host where nobody shows a key: 64 ranks with as many loaders each."""

MOST_SESSIONS = 2 * MOST_SESSIONS_EACH
"""Of all. Each takes about 40 kB, so a third of a gigabyte; and one client's never keep out all others."""

MOST_LANES = 16_384
"""Of all: for 1,000 ranks with 16 lanes each."""

MOST_LANES_EACH = MOST_LANES // 2
"""Of one client: as many are left for the others."""

MOST_CATALOG_BYTES_EACH = 512 << 20
"""Of one client's lists of shards, as they were sent: the longest there may be, four million shards with names of 60 characters,
has this. Held in memory it is about five times as large, so what one may have is bounded and not small."""

MOST_CATALOG_BYTES = 2 * MOST_CATALOG_BYTES_EACH
"""Of all clients' lists."""

MOST_QUEUED_MESSAGES = 8
"""Control messages that wait here from one connection: at most 32 MiB. What is more waits at the sender."""

MOST_ANSWERS = 256
"""Answers that wait for one connection to take them. A rank has at most 16 questions open; the rest are pongs."""

MOST_OPEN_QUESTIONS = 64
"""Questions of one session whose answers wait for memory: four times what the protocol asks of a rank."""

MOST_ANSWER_BYTES_EACH = 64 << 20
"""Of long answers (lists of shards, sizes of records) under way to one client. What a connection of 10 Gbit/s takes in 50 ms."""

UNREAD_MS = 30_000
"""A peer that takes nothing of what waits for it so long is hung up on. A rank that is only stopped has lost its session
long before, and calls again."""

MOST_TURN_NS = 10_000_000
"""Listening to control messages, before everything else has its turn: heartbeats count in hundreds of milliseconds."""

MOST_REST_NS = 50_000_000
"""After a turn that was used up the thread does not listen for as long as it did, so that messages, however many come, take half
of its time and data threads get the rest; but never longer than this, though one message may have taken a second."""
