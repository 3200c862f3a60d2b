"""The tuner of one loader: it looks twice a second while the loader works, and lets the rule decide.

Covers: when it looks, the log. Used by the receive thread. Does not cover: the rule (emlio.receiver.tuning.rule), what is
seen (`look`), carrying a decision out (emlio.receiver.engine.engine).
"""

import logging
from collections.abc import Callable
from typing import Any, Final, cast

from emlio.errors import EmlioError
from emlio.receiver.tuning.choice import Rule
from emlio.receiver.tuning.log import TuningLog
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning

__all__ = ["Tuner"]

_LOG: Final = logging.getLogger("emlio.receiver")

_EVERY_NS: Final = 500_000_000


class Tuner:
    """The tuner of one loader."""

    def __init__(
        self, tuning: Tuning, look: Callable[[], Snapshot], log: TuningLog | None = None, rule: Rule = decide
    ) -> None:
        """Begin with these settings; `look` returns what the loader sees now."""
        self._state = RuleState(tuning=tuning)
        self._look = look
        self._rule = rule
        self._log = log
        self._due_ns: int | None = None
        self._looked_ns = -_EVERY_NS

    def deadline_ns(self) -> int | None:
        """The time of the next look; None while nothing happens."""
        return self._due_ns

    def is_due(self, now_ns: int) -> bool:
        """Return whether it is time for a look."""
        return now_ns >= self._looked_ns + _EVERY_NS

    def turn(self, now_ns: int, limits: Limits) -> Tuning | None:
        """Look, and return new settings, if there are any."""
        seen, last = self._look(), self._state.last
        self._looked_ns, self._due_ns = now_ns, now_ns + _EVERY_NS
        if last is not None and (seen.received_bytes, seen.batches, seen.wait_ns) == (
            last.received_bytes,
            last.batches,
            last.wait_ns,
        ):
            self._due_ns = None  # until something happens
        decision = None
        before = self._state
        try:
            self._state, decision = self._decide(before, seen, limits)
        finally:  # what a rule fails on is in the log
            self._note(before, limits, seen, decision)
        if decision is None:
            return None
        _LOG.debug("tuned: %s", decision.reason)
        return decision.tuning

    def _note(self, before: RuleState, limits: Limits, seen: Snapshot, decision: Decision | None) -> None:
        try:
            if self._log is not None:
                self._log.add(before, limits, seen, decision)
        except OSError as error:
            _LOG.warning("the log of the tuner cannot be written any more: %s", error.strerror or error)
            self.close()

    def _decide(self, state: RuleState, seen: Snapshot, limits: Limits) -> tuple[RuleState, Decision | None]:
        try:
            found: Any = self._rule(state, seen, limits)
        except BaseException as error:  # also SystemExit: it would end this thread alone, and the user would wait
            raise EmlioError(
                f"the rule that tune= gave must return a state and a decision, it failed: {error!r}"
            ) from error
        is_pair = isinstance(found, tuple) and len(cast("tuple[object, ...]", found)) == 2
        after, decision = cast("tuple[object, object]", found) if is_pair else (None, None)
        if not isinstance(after, RuleState) or not isinstance(decision, Decision | None):
            raise EmlioError(f"the rule that tune= gave must return a RuleState and a Decision or None, got {found!r}")
        if decision is None:
            return after, None
        tuning, reason = cast("tuple[object, object]", (decision.tuning, decision.reason))
        if not isinstance(tuning, Tuning) or not isinstance(reason, str):
            raise EmlioError(
                f"the rule that tune= gave must return a Decision of a Tuning and a reason in words, got {decision!r}"
            )
        if tuning.window_bytes > limits.most_window_bytes:
            raise EmlioError(
                "the rule that tune= gave must keep window_bytes within limits.most_window_bytes, "
                f"{limits.most_window_bytes:,}, got {tuning.window_bytes:,}"
            )
        if after.tuning != tuning:
            raise EmlioError(
                "the rule that tune= gave must return a state whose tuning is that of its decision, "
                f"got {after.tuning!r} and {tuning!r}"
            )
        return after, decision

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None
