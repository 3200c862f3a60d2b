"""The time of the current event and the instructions that follow, shared by the machine's parts.

Covers: keeping both. Does not cover: decisions.
"""

from emlio.receiver.machine.instructions import Instruction, Level, Note

__all__ = ["Outbox"]


class Outbox:
    """The current time and the pending instructions.

    Attributes:
        now_ns: the time of the event.
    """

    def __init__(self) -> None:
        """Begin without instructions."""
        self.now_ns = 0
        self._waiting: list[Instruction] = []

    def add(self, instruction: Instruction) -> None:
        """Add an instruction after those added before."""
        self._waiting.append(instruction)

    def note(self, level: Level, text: str) -> None:
        """Add a line for the log."""
        self._waiting.append(Note(level, text))

    def take(self) -> list[Instruction]:
        """Return the instructions added since the last call."""
        waiting, self._waiting = self._waiting, []
        return waiting
