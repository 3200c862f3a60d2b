"""Questions of ranks whose answers take a while, and so are found outside the control thread.

Covers: passing them to what answers them. Does not cover: the answers (emlio.daemon.control.energy_service,
emlio.daemon.control.match_service).
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.client import Client
from emlio.daemon.control.energy_service import EnergyService
from emlio.daemon.control.match_service import MatchService
from emlio.daemon.datasets.served import ServedDataset
from emlio.energy.values.run import boot_id
from emlio.session.instructions import DaemonInstruction, LookUpEnergy, LookUpMatches
from emlio.wire.control import EnergyReply

__all__ = ["SlowQuestions"]


class SlowQuestions:
    """Energy and predicates. The control thread calls its methods."""

    def __init__(
        self,
        config: DaemonConfig,
        call: Callable[[Callable[[], None]], None],
        carry_out: Callable[[Client, Sequence[DaemonInstruction]], None],
    ) -> None:
        """See the class.

        Args:
            config: the daemon's configuration.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for.
        """
        self._energy = EnergyService(config.energy, boot_id(Path("/proc")), call, carry_out)
        self._matches = MatchService(config.cache_dir, call, carry_out)

    def ask(self, client: Client, asked: LookUpEnergy | LookUpMatches) -> None:
        """Answer a client's question, now or later."""
        if isinstance(asked, LookUpEnergy):
            self._energy.ask(client, asked.question)
        else:
            self._matches.ask(client, asked.question)

    def hand_over(self, client: Client, reply: EnergyReply) -> EnergyReply:
        """Return an answer that is sent now, and begin the client's next question."""
        return self._energy.hand_over(client, reply)

    def forget(self, client: Client) -> None:
        """Drop the questions of a session that is over."""
        self._energy.forget(client)
        self._matches.forget(client)

    def forget_dataset(self, served: ServedDataset) -> bool:
        """Drop what is known of a dataset that is closed; return False while it is read."""
        return self._matches.forget_dataset(served)

    def close(self) -> None:
        """End the threads."""
        self._energy.close()
        self._matches.close()
