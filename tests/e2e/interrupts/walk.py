"""A loader walked through while its user's thread is struck again and again, compared with what nobody disturbs.

Covers: strikes within `next`, `iter`, `state_dict`, `close`; what was received, the state and the exceptions after each. Does not
cover: processes (tests.e2e.interrupts.__main__).
"""

import faulthandler
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from emlio import EmlioLoader
from tests.e2e.interrupts.strikes import Alarm, AtMoments, AtPlaces, Interrupt
from tests.e2e.interrupts.ways import Expected, identity

__all__ = ["Walk"]

_HANGS_S = 30.0
_STRIKES_A_LOADER = 200
_DETAILS = 8


class Walk:
    """One way's walk. A thing that hangs ends the process, with all stacks on standard error.

    Attributes:
        counts: strikes, and what was wrong after them: `shifted` batches, `states` that disagree with what was received, `stale`
            exceptions, which were not the one just raised; `ignored` are strikes that hit a finalizer, where
            Python drops any exception, or code of others that does.
        details: of the first wrong things.
    """

    def __init__(self, make: Callable[[], EmlioLoader], expected: Expected) -> None:
        self.counts: Counter[str] = Counter(strikes=0, shifted=0, states=0, stale=0, ignored=0)
        self.details: list[str] = []
        self._ignored: set[object] = set()
        sys.unraisablehook = self._ignore
        self._make = make
        self._expected = expected
        self._got: list[Any] = []
        self._count = 0
        self._loader: EmlioLoader | None = None
        self._iterator: Iterator[Any] | None = None

    # ---- at random moments ----------------------------------------------------------------------------------------

    def at_moments(self, strikes: int, seed: int, longest_s: float) -> None:
        """So many strikes in tight loops, of which some end epochs and begin others."""
        moments = AtMoments(seed, longest_s)
        draws = random.Random(seed)
        while moments.struck < strikes:
            most = min(moments.struck + _STRIKES_A_LOADER, strikes)
            with self._make() as self._loader:
                self._count, self._iterator = 0, None
                while moments.struck < most:
                    self._round(moments, draws.random() < 0.5)
                self._close(moments)
        self.counts["strikes"] = moments.struck

    def _round(self, moments: AtMoments, by_hand: bool) -> None:
        """To the next strike, or the end of an epoch."""
        faulthandler.dump_traceback_later(_HANGS_S, exit=True)
        struck, caught = moments.struck, None
        got, box, ended = self._got, [None], False
        try:
            try:
                moments.arm()
                if self._iterator is None:
                    self._iterator = iter(self._now())
                if by_hand:
                    for box[0] in self._iterator:
                        got.append(box[0])
                else:
                    got.extend(self._iterator)
                ended = True
            finally:
                moments.disarm()  # a strike may still come where it begins, and is caught as all others are
        except BaseException as error:  # noqa: BLE001  # it is compared with the one that was raised
            caught = error
        if box[0] is not None and (not got or got[-1] is not box[0]):
            got.append(box[0])
        wrong = self._blame(moments, caught, struck)
        del caught
        if not self._settle() or wrong:
            self._begin_anew()
        elif ended:
            if self._count not in self._expected.begins:
                self._tell("shifted", f"an epoch ended after {self._count} batches")
            self._iterator = None
            if self._count >= self._expected.begins[-1]:
                self._begin_anew()

    def _close(self, moments: AtMoments) -> None:
        """Struck, too, and then ended for good by the `with`."""
        faulthandler.dump_traceback_later(_HANGS_S, exit=True)
        struck, caught = moments.struck, None
        try:
            try:
                moments.arm()
                self._now().close()
            finally:
                moments.disarm()
        except BaseException as error:  # noqa: BLE001  # see above
            caught = error
        self._blame(moments, caught, struck)

    # ---- at each place --------------------------------------------------------------------------------------------

    def at_places(self, step: int = 1, first: int = 1) -> None:
        """Strikes at every `step`-th place of each operation, one after the other, and a second one after each of those."""
        places = AtPlaces()
        draws = random.Random(first)
        with self._make() as self._loader:
            for operation in (self._next, self._leave, self._end, self._look):
                place = first
                while operation(places, place, draws):
                    place += step
        place = first
        while self._struck_close(places, place):
            place += 4 * step
        self.counts["strikes"] = places.struck

    def _try(self, places: AtPlaces, place: int, work: Callable[[], object]) -> bool:
        """Whether it was struck."""
        faulthandler.dump_traceback_later(_HANGS_S, exit=True)
        struck, caught = places.struck, None
        try:
            places.arm(place)
            work()
        except BaseException as error:  # noqa: BLE001  # see above
            caught = error
        places.disarm()
        hit = places.struck != struck
        wrong = self._blame(places, caught, struck)
        del caught
        self.counts[work.__name__] += hit
        if not self._settle() or wrong:
            self._begin_anew()
        return hit

    def take(self) -> None:
        """The next batch, as C code takes it: it is in the list or was not handed out."""
        assert self._iterator is not None
        self._got.extend(islice(self._iterator, 1))

    def begin(self) -> None:
        """An iteration."""
        self._iterator = iter(self._now())

    def look(self) -> None:
        """At the state."""
        self._now().state_dict()

    def close(self) -> None:
        """The loader."""
        self._now().close()

    def _go_to(self, batches: int) -> None:
        """To this place in the first epochs, undisturbed."""
        self._begin_anew()
        self.begin()
        self._got.extend(islice(self._iterator or (), batches))
        self._settle()

    def _next(self, places: AtPlaces, place: int, draws: random.Random) -> bool:
        if self._iterator is None or self._count + 3 >= self._expected.begins[1]:
            self._go_to(0)
        self.take()
        hit = self._try(places, place, self.take)
        if hit and self._iterator is not None:
            self._try(places, draws.randrange(1, 2 * place + 2), self.take)
        if self._iterator is not None:
            self._try(places, 0, self.take)
        return hit

    def _leave(self, places: AtPlaces, place: int, draws: random.Random) -> bool:
        """In the midst of an epoch."""
        self._go_to(2)
        old = self._iterator
        hit = self._try(places, place, self.begin)
        if hit and draws.random() < 0.5:
            self._try(places, draws.randrange(1, 2 * place + 2), self.begin)
        self.begin()
        if self._iterator is old:
            self._tell("shifted", "iter() gave the old iterator")
        self._count = self._expected.begins[1]
        self._try(places, 0, self.take)
        self._try(places, 0, self.take)
        return hit

    def _end(self, places: AtPlaces, place: int, draws: random.Random) -> bool:
        self._go_to(self._expected.begins[1])
        hit = self._try(places, place, self.take)
        if hit and self._iterator is not None and draws.random() < 0.5:
            self._try(places, draws.randrange(1, 2 * place + 2), self.take)
        for _ in range(2):
            if self._iterator is not None:
                self._try(places, 0, self.take)
        if self._count != self._expected.begins[1]:
            self._tell("shifted", "a batch came after the epoch's last")
            self._begin_anew()
        self.begin()
        self._try(places, 0, self.take)
        return hit

    def _look(self, places: AtPlaces, place: int, _: random.Random) -> bool:
        return self._try(places, place, self.look)

    def _struck_close(self, places: AtPlaces, place: int) -> bool:
        with self._make() as self._loader:
            self._count = 0
            self.begin()
            self.take()
            faulthandler.dump_traceback_later(_HANGS_S, exit=True)
            struck, caught = places.struck, None
            try:
                places.arm(place)
                self.close()
            except BaseException as error:  # noqa: BLE001  # see above
                caught = error
            places.disarm()
            hit = places.struck != struck
            self._blame(places, caught, struck)
            self.counts["close"] += hit
            self._got.clear()
            return hit

    def _ignore(self, told: "sys.UnraisableHookArgs") -> None:
        if isinstance(told.exc_value, Alarm | Interrupt):
            self._ignored.update(told.exc_value.args)
        else:
            self._tell("stale", f"in a finalizer: {told.exc_value!r}")

    # ---- judging --------------------------------------------------------------------------------------------------

    def _now(self) -> EmlioLoader:
        assert self._loader is not None
        return self._loader

    def _blame(self, strikes: AtMoments | AtPlaces, caught: BaseException | None, before: int) -> bool:
        """Whether an exception is another one than that just raised, or is missing."""
        struck = strikes.struck if strikes.struck != before else None
        if caught is None and struck is not None and (struck in self._ignored or strikes.lost_in_vendors(struck)):
            self.counts["ignored"] += 1
            return False
        if (caught.args[:1] if caught is not None else None) == ((struck,) if struck is not None else None):
            return False
        self._tell("stale", f"strike {struck} gave {caught!r}, from {getattr(caught, '__cause__', None)!r}")
        return True

    def _settle(self) -> bool:
        """Whether the batches received and the state are right."""
        good = True
        for batch in self._got:
            if identity(batch) != self._expected.batches[self._count]:
                self._tell("shifted", f"another batch came in the place of batch {self._count}")
                good = False
                break
            self._count += 1
        self._got.clear()
        state = json.dumps(self._now().state_dict()) if good else ""
        allowed = self._expected.states[self._count]
        left = self._expected.states[self._expected.begins[1]][-1:] if self._count == 2 else ()
        if good and state not in allowed + left:
            self._tell("states", f"after {self._count} batches the state is {state}")
            good = False
        return good

    def _begin_anew(self) -> None:
        self._now().load_state_dict(json.loads(self._expected.states[0][0]))
        self._iterator, self._count = None, 0

    def _tell(self, kind: str, detail: str) -> None:
        self.counts[kind] += 1
        if len(self.details) < _DETAILS:
            self.details.append(f"{kind}: {detail}")
