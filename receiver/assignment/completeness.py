"""The decision whether some daemons hold a whole dataset, by what they say themselves.

A loader may begin without a daemon that does not answer only if that daemon can add nothing. This
must follow from the data, never from which daemon answered first: all sets of daemons found
complete hold the same shards, so all ranks arrive at one plan.

Covers: that decision, and the reason if it is negative. Pure. Does not cover: waiting
(emlio.receiver.machine.quorum), shards that all daemons together lack
(emlio.receiver.assignment.agreement).
"""

from collections.abc import Sequence

from emlio.formats.tfrecord.shard_names import numbered_family, numbered_shard
from emlio.receiver.assignment.agreement import Holding

__all__ = ["why_not_whole"]

_NAMED = 3


def why_not_whole(holdings: Sequence[Holding]) -> str:
    """Return why these may not be the whole dataset; "" if they are.

    They are the whole dataset if the names of all shards have one form and give the total, as in
    train-00000-of-00128, and all of those are held. Names without a total prove nothing, unless a
    mapping does: a daemon that lacks shards knows from its mappings how many there are.
    """
    if not holdings:
        return "none has sent its list of shards"
    present = {row.name for holding in holdings for row in holding.own_rows}
    named = present.union(*(holding.own_missing for holding in holdings))
    families = {numbered_family(name) for name in named}
    # The shards a daemon knows of: it names only the first of those it lacks, but counts them all.
    totals = {len(holding.rows) + holding.missing_count for holding in holdings}
    if families == {None}:
        if not any(holding.missing_count for holding in holdings):
            return "the names of the shards do not contain their total number"
        if len(totals) > 1:
            return "the daemons disagree on the number of shards"
        total = max(*totals, len(named))
    elif len(families) > 1:
        return "the names of the shards have several patterns with different totals"
    else:
        numbers = {numbered_shard(name) for name in present}
        total = max(max((number[1] for number in numbers if number is not None), default=0), *totals)
        if len(numbers) < len(present):
            return "two shards have the same number"
    if len(present) == total:
        return ""
    absent = sorted(named - present)
    example = f", for example not {', '.join(absent[:_NAMED])}" if absent else ""
    return f"the others hold {len(present)} of {total} shards{example}"
