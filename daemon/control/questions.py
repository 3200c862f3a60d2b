"""The questions of ranks whose answers may be long: shards, sizes, predicates, energy, single records.

Covers: which part answers which question, one limit of memory for all answers. Does not cover: the
answers (emlio.daemon.datasets.served, emlio.daemon.control.energy_service,
emlio.daemon.control.match_service, emlio.daemon.control.record_service), the limit (emlio.daemon.control.reply_budget).
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import assert_never

from emlio.clock import Clock
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.client import Client
from emlio.daemon.control.energy_service import EnergyService
from emlio.daemon.control.match_service import MatchService
from emlio.daemon.control.record_service import RecordService
from emlio.daemon.control.reply_budget import ReplyBudget
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.limits import MOST_OPEN_QUESTIONS
from emlio.daemon.network.transport import Sent
from emlio.energy.values.run import boot_id
from emlio.session.instructions import (
    DaemonInstruction,
    LookUpEnergy,
    LookUpMatches,
    LookUpRecords,
    LookUpSizes,
)
from emlio.wire.control import ControlMessage, EnergyReply, RecordsReply, ShardsReply

__all__ = ["Questions"]


class Questions:
    """Answers the questions of all ranks. Used by the control thread."""

    def __init__(
        self,
        config: DaemonConfig,
        clock: Clock,
        send: Callable[[Client, bytes], Sent],
        call: Callable[[Callable[[], None]], None],
        carry_out: Callable[[Client, Sequence[DaemonInstruction]], None],
    ) -> None:
        """See the class.

        Args:
            config: the daemon's configuration.
            clock: the control thread's.
            send: sends an encoded message.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for. It calls `answer` with what is
                looked up.
        """
        self._carry_out = carry_out
        self._replies = ReplyBudget(send)
        self._energy = EnergyService(config.energy, boot_id(Path("/proc")), call, carry_out)
        self._matches = MatchService(config.cache_dir, call, carry_out)
        self._records = RecordService(clock, call, carry_out)

    def look_up(self, client: Client, question: LookUpSizes | LookUpMatches | LookUpRecords | LookUpEnergy) -> None:
        """Look up the answer to a question of this client, now or later."""
        match question:
            case LookUpSizes(shard=shard, first=first, count=count):
                self._add(client, partial(client.served.sizes, shard, first, count))
            case LookUpMatches(question=predicate):
                self._matches.ask(client, predicate)
            case LookUpRecords(question=records):
                self._records.ask(client, records)
            case LookUpEnergy(question=energy):
                self._energy.ask(client, energy)
            case _:
                assert_never(question)

    def answer(self, client: Client, reply: ShardsReply | EnergyReply | RecordsReply) -> None:
        """Send an answer, now or when there is memory."""
        match reply:
            case ShardsReply():
                self._add(client, partial(client.served.encoded, reply))
            case EnergyReply():
                self._add(client, partial(self._energy.hand_over, client, reply))
            case RecordsReply():
                self._add(client, partial(self._records.hand_over, client, reply))
            case _:
                assert_never(reply)

    def _add(self, client: Client, answer: Callable[[], ControlMessage | bytes]) -> None:
        if not self._replies.add(client, answer):
            text = f"a session may have at most {MOST_OPEN_QUESTIONS} unanswered requests, this rank sent another one"
            self._carry_out(client, client.machine.refuse("protocol", text))

    @property
    def under_way(self) -> bool:
        """True if answers still take memory, including those to clients that have gone."""
        return self._replies.under_way

    def turn(self) -> None:
        """Make the answers for which there is memory now."""
        self._replies.turn()

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return the latest time at which `turn` must be called."""
        return self._replies.deadline_ns(now_ns)

    def forget(self, client: Client) -> None:
        """Drop the questions of a session that is over."""
        self._replies.forget(client)
        self._energy.forget(client)
        self._matches.forget(client)
        self._records.forget(client)

    def forget_dataset(self, served: ServedDataset) -> bool:
        """Drop what is known of a dataset that is closed; return False while it is read."""
        return self._matches.forget_dataset(served)

    def close(self) -> None:
        """End the threads that read answers."""
        self._energy.close()
        self._matches.close()
        self._records.close()
