"""The limits of what one client, and all clients together, may use of a daemon.

docs/operate/security.md lists the numbers in one table; this module has the reasons. Does not cover: sizes
of messages (emlio.wire.limits), memory for records (emlio.daemon.config), the number of processes
that wait for a rank (emlio.daemon.ranks.claims).
"""

from emlio.wire.limits import MAX_LANES

__all__ = [
    "MOST_ANSWERS",
    "MOST_ANSWER_BYTES_EACH",
    "MOST_CATALOG_BYTES",
    "MOST_CATALOG_BYTES_EACH",
    "MOST_CONNECTED",
    "MOST_CONNECTED_EACH",
    "MOST_CONNECTED_SESSION",
    "MOST_LANES",
    "MOST_LANES_EACH",
    "MOST_LANE_FRAMES_QUEUED",
    "MOST_LANE_MESSAGES",
    "MOST_MATCH_BYTES",
    "MOST_OPEN_QUESTIONS",
    "MOST_QUESTIONS_EACH",
    "MOST_QUEUED_MESSAGES",
    "MOST_REST_NS",
    "MOST_SESSIONS",
    "MOST_SESSIONS_EACH",
    "MOST_STATUS_AT_ONCE",
    "MOST_STATUS_UNDER_WAY",
    "MOST_TURN_NS",
    "STATUS_EVERY_NS",
    "UNREAD_MS",
]

MOST_SESSIONS_EACH = 4096
"""Sessions of one client's key, or of one host where clients need no key: 64 ranks with 64 loaders
each."""

MOST_SESSIONS = 2 * MOST_SESSIONS_EACH
"""Sessions of all clients. Each takes about 40 kB, so a third of a gigabyte in total. One client's
sessions never keep out all others."""

MOST_LANES = 16_384
"""Lanes of all clients: enough for 1,000 ranks with 16 lanes each."""

MOST_LANES_EACH = MOST_LANES // 2
"""Lanes of one client; the other half is left for other clients."""

MOST_CONNECTED = 2 * MOST_LANES
"""Connected lanes of all clients, in use or not: each lane may have one beside it that it
replaces."""

MOST_CONNECTED_EACH = MOST_CONNECTED // 2
"""Connected lanes of one client."""

MOST_CONNECTED_SESSION = 4 * MAX_LANES
"""Connected lanes of one session: those in use, those that they replace, and as many that never
sent anything."""

MOST_LANE_FRAMES_QUEUED = 512
"""Frames that libzmq queues for one lane. This limit is never reached: after a queue was full,
libzmq walks over all lanes to find it."""

MOST_LANE_MESSAGES = MOST_LANE_FRAMES_QUEUED // 4 - 2
"""Messages under way on a lane. Each has at most two frames, and libzmq learns of the frames that
have left a queue only half a queue at a time."""

MOST_CATALOG_BYTES_EACH = 512 << 20
"""Bytes of one client's catalogs as they were sent, and of its sets of records. The longest possible catalog has this size:
four million shards with names of 60 characters. In memory a catalog is about five times as large,
so the limit is needed although it is not small."""

MOST_CATALOG_BYTES = 2 * MOST_CATALOG_BYTES_EACH
"""Bytes of all clients' catalogs and sets of records."""

MOST_MATCH_BYTES = 512 << 20
"""Bytes of the results of predicates that are kept for other ranks, a bit for each record. One result is always kept."""

MOST_QUESTIONS_EACH = 4 * MOST_SESSIONS_EACH
"""Open questions of one client; all clients together may have twice as many. A question takes at most 17 kB."""

MOST_QUEUED_MESSAGES = 64
"""Control messages queued here from one connection: at most 256 MiB, a few kB from a rank. More messages wait at the sender, or
in the kernel; those are lost if the connection ends, a rank's goodbye among them."""

MOST_ANSWERS = 256
"""Answers queued for one connection. A rank has at most 80 open questions; the rest are pongs."""

MOST_OPEN_QUESTIONS = 128
"""Questions of one session whose answers wait for memory, those for parts of the list of shards
among them: half as many again as the protocol allows a rank to ask."""

MOST_ANSWER_BYTES_EACH = 64 << 20
"""Bytes of long answers (lists of shards, sizes of records) under way to one client. A connection
of 10 Gbit/s takes them in 50 ms."""

STATUS_EVERY_NS = 200_000_000
"""One status request of a client in so much time is answered. Making an answer with 1,000 ranks
takes some milliseconds of the control thread."""

MOST_STATUS_AT_ONCE = 10
"""Status requests of a client that are answered at once after a pause: several people look."""

MOST_STATUS_UNDER_WAY = 16
"""Status replies that take memory, to all clients together, one to each. A reply takes 300 kB with
1,000 ranks, 3 MB at most."""

UNREAD_MS = 30_000
"""The connection of a peer that reads nothing for so long is closed. A rank that is only suspended
has lost its session long before, and calls again."""

MOST_TURN_NS = 10_000_000
"""The longest time that the control thread reads messages before its other work gets a turn.
Heartbeats are counted in hundreds of milliseconds."""

MOST_REST_NS = 50_000_000
"""The longest pause after a turn that was used up. The thread pauses for as long as it has read, so
that messages take at most half of its time and the data threads get the rest. The pause is limited
since a single message may have taken a second."""
