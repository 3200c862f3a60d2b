"""What a user is told of a daemon that is lost, was never here, or is waited for.

Covers: the words. Pure. Does not cover: when they are said (emlio.receiver.crew), single errors (emlio.session.rank).
"""

from emlio.receiver.config import LoaderConfig
from emlio.receiver.flow import Flow, few
from emlio.receiver.quorum import Quorum
from emlio.receiver.reorder import Reorder
from emlio.receiver.retry import MISUNDERSTANDINGS, Retry, is_misunderstanding
from emlio.receiver.source import Source, Sources
from emlio.units import format_duration

__all__ = ["farewell", "waiting_for", "what_follows"]


def what_follows(config: LoaderConfig, flow: Flow, source: Source) -> str:
    """What is done about its loss."""
    timeout = format_duration(config.timeout_ns)
    if flow.agreement is None:
        retry = source.retry
        if source.holding is None and retry is not None and is_misunderstanding(retry.error):
            return f"it is called again, {MISUNDERSTANDINGS} times at most"
        return f"it is called again, for {timeout} in all"
    if not flow.needs(source):
        return "others send its part" if source.holding is not None else "it is not needed"
    return f"nobody else holds {flow.shards_of(source)}, so it must be back within {timeout}"


def farewell(config: LoaderConfig, flow: Flow, quorum: Quorum, source: Source, retry: Retry) -> str:
    """Why the job ends."""
    timeout = format_duration(config.timeout_ns)
    if source.holding is None:
        what, why = source.obstacle() or "no answer came", quorum.doubt()
        return (
            f"the daemon at {source.peer} must answer within {timeout}, {what}; is emlio-daemon running there, and is the port "
            f"reachable? (attempts: {retry.attempts + 1})"
            + (f" It may hold what nobody else does: {why}" if why else "")
        )
    last = f", the last: {retry.since}" if retry.since is not None else ""
    attempts = f"in {retry.attempts} more attempts{last}"
    return (
        f"{retry.error}; it must come back within {timeout}, since nobody else sends {flow.shards_of(source)}, "
        f"and did not {attempts}; {flow.position()}"
    )


def waiting_for(reorder: Reorder | None, flow: Flow, sources: Sources, now_ns: int) -> str:
    """The next batch and the daemons that owe it records."""
    if reorder is None:
        return "no stream was opened"
    names = ", ".join(reorder.missing_from()) or "nothing"
    if flow.agreement is not None:
        shards = flow.agreement.plan.catalog.shards
        missing: list[int] = reorder.missing_shards().tolist()
        names += f" of {few([shards[shard].name for shard in missing])}" if missing else ""
    states = sources.describe(now_ns)
    wait = f"batch {reorder.next_step} of epoch {reorder.next_epoch} waits for records from {names}"
    return f"{wait} ({states})" if states else wait
