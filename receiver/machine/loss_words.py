"""Texts for the user about a daemon that is lost, was never connected, or is waited for.

Covers: the texts. Pure. Does not cover: when they are used (emlio.receiver.machine.daemon_pool),
single errors (emlio.session.rank).
"""

from emlio.errors import EmlioError
from emlio.receiver.machine.quorum import Quorum
from emlio.receiver.machine.retry import MISUNDERSTANDINGS, Retry, is_misunderstanding
from emlio.receiver.machine.shard_assignment import ShardAssignment, few
from emlio.receiver.machine.source import Source
from emlio.receiver.machine.sources import Sources
from emlio.receiver.placement.reorder import Reorder
from emlio.receiver.setup.config import LoaderConfig
from emlio.units import format_duration

__all__ = ["farewell", "loss", "waiting_for", "what_follows"]


def what_follows(config: LoaderConfig, assignment: ShardAssignment, source: Source) -> str:
    """Return what is done about the loss of a daemon."""
    timeout = format_duration(config.recovery.timeout_ns)
    if assignment.agreement is None:
        retry = source.retry
        if source.holding is None and retry is not None and is_misunderstanding(retry.error):
            return f"reconnecting, at most {MISUNDERSTANDINGS} times"
        return f"reconnecting, for {timeout} in all"
    if not assignment.needs(source):
        return "other daemons send its shards" if source.holding is not None else "it is not needed"
    return f"no other daemon holds {assignment.shards_of(source)}, so it must reconnect within {timeout}"


def loss(
    config: LoaderConfig, assignment: ShardAssignment, source: Source, error: EmlioError, *, was_here: bool
) -> str:
    """Return that a daemon is lost, why, and what is done about it."""
    daemon, next_words = f"the daemon at {source.peer}", what_follows(config, assignment, source)
    if not was_here and str(error).startswith(f"{daemon} cannot be reached"):
        return f"{error}; {next_words}"  # it names the daemon and says what is wrong
    return f"{daemon} is {'lost' if was_here else 'not connected'}: {error}; {next_words}"


def farewell(config: LoaderConfig, assignment: ShardAssignment, quorum: Quorum, source: Source, retry: Retry) -> str:
    """Return why the job ends."""
    timeout = format_duration(config.recovery.timeout_ns)
    if source.holding is None:
        obstacle, why = source.obstacle(), quorum.doubt()
        doubt = f"; it may hold shards that no other daemon has: {why}" if why else ""
        return (
            f"the daemon at {source.peer} must answer within {timeout}, {obstacle.words} (attempts: "
            f"{retry.attempts + 1}){doubt}. {obstacle.advice}"
        )
    last = f", the last: {retry.since}" if retry.since is not None else ""
    attempts = f"in {retry.attempts} more attempts{last}"
    return (
        f"{retry.error}; no other daemon sends {assignment.shards_of(source)}, and it did not reconnect within "
        f"{timeout} {attempts}; {assignment.position()}"
    )


def waiting_for(reorder: Reorder | None, assignment: ShardAssignment, sources: Sources) -> str:
    """Return the next batch and the daemons that owe it records, in words."""
    if reorder is None:
        return "no stream was opened"
    names = ", ".join(reorder.missing_from()) or "nothing"
    if assignment.agreement is not None:
        shards = assignment.agreement.plan.catalog.shards
        missing: list[int] = reorder.missing_shards().tolist()
        names += f" of {few([shards[shard].name for shard in missing])}" if missing else ""
    states = sources.describe()
    wait = f"batch {reorder.next_step} of epoch {reorder.next_epoch} waits for records from {names}"
    return f"{wait} ({states})" if states else wait
