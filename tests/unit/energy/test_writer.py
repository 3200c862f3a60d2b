from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from emlio.energy.recording.store import Store
from emlio.energy.recording.writer import Writer
from emlio.energy.values.run import Run
from emlio.errors import ConfigError
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading
from emlio_testing.processes import settles

RUN = Run(node="s1", devices=(make_device(),), interval_ns=1, begun_mono_ns=0, begun_real_ns=0)
SOON_S = 20.0


class SlowStore(Store):
    """A file on a disk that stands still until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, read_only=False)
        self.reached = Event()
        self.goes = Event()

    def append(self, number: int, readings: object) -> None:
        self.reached.set()
        assert self.goes.wait(SOON_S)
        super().append(number, readings)  # type: ignore[arg-type]  # as it came


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SlowStore]:
    with SlowStore(tmp_path / "energy.sqlite") as opened:
        yield opened


def seqs(store: Store) -> list[int]:
    return [one.seq for one in store.readings()]


def test_a_disk_that_stands_still_delays_nobody_and_loses_nothing_that_fits(store: SlowStore) -> None:
    writer = Writer(store, store.begin(RUN), most_waiting=10)
    writer.put([make_reading(0, 0, 0)])
    assert store.reached.wait(SOON_S)
    for seq in range(1, 15):
        writer.put([make_reading(seq, seq, seq)])
    assert writer.dropped == 4
    store.goes.set()
    writer.close()
    writer.close()
    assert seqs(store) == list(range(11))


def test_a_failure_is_told_to_whoever_hands_over(store: SlowStore) -> None:
    store.goes.set()
    writer = Writer(store, store.begin(RUN))
    writer.put([make_reading(0, 0, 0), make_reading(0, 1, 0)])

    def told() -> bool:
        try:
            writer.put([])
        except ConfigError as error:
            return "cannot be used: UNIQUE" in str(error)
        return False

    assert settles(told, SOON_S)
    with pytest.raises(ConfigError, match="cannot be used: UNIQUE"):
        writer.close()


def test_what_is_older_than_it_is_to_be_kept_goes(store: SlowStore) -> None:
    store.goes.set()
    number = store.begin(RUN)
    store.append(number, [make_reading(seq, seq * SECOND_NS, 0) for seq in range(200)])
    writer = Writer(store, number, keep_ns=50 * SECOND_NS)
    writer.put([make_reading(200, 200 * SECOND_NS, 0)])
    writer.close()
    assert seqs(store) == list(range(150, 201))
