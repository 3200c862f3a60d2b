from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from emlio.clocks.fit import ClockFit, ClockLine
from emlio.energy.job.journal import (
    Journal,
    JournalEpoch,
    JournalFile,
    LoaderFacts,
    StorageEnergy,
    read_journals,
)
from emlio.energy.job.stages import CpuUse
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.reading import Reading
from emlio.energy.values.spans import Span, Stage
from emlio_testing.energy_series import make_device

NS = st.integers(0, 2**62)
MAYBE = st.one_of(st.none(), st.integers(0, 2**62))
NAMES = st.text(min_size=1, max_size=8)
DEVICES = (
    make_device(most_watts=9.5, note="ä"),
    make_device("GPU-1", Domain.GPU, source="model", method=Method.ESTIMATED, error=0.5),
)


@st.composite
def readings(draw: st.DrawFn) -> tuple[Reading, ...]:
    moments = sorted(draw(st.sets(st.integers(0, 2**62), max_size=5)))
    return tuple(
        Reading(
            seq=seq,
            mono_ns=at_ns,
            real_ns=draw(NS),
            spread_ns=draw(NS),
            totals=(draw(st.one_of(st.none(), st.just(seq))), draw(st.one_of(st.none(), st.just(2**60)))),
            events=draw(st.sampled_from([(), (Event.WRAPPED, Event.NONE)])),
            missed=draw(st.integers(0, 9)),
            edge=draw(st.booleans()),
            cpu_busy_ns=draw(MAYBE),
            memory_bytes=draw(MAYBE),
        )
        for seq, at_ns in enumerate(moments)
    )


@st.composite
def storages(draw: st.DrawFn) -> StorageEnergy:
    if draw(st.booleans()):
        return StorageEnergy(daemon=draw(NAMES), absent=draw(NAMES))
    line = ClockLine(
        from_ns=1,
        to_ns=draw(st.integers(1, 2**60)),
        offset_ns=draw(st.integers(-(2**60), 2**60)),
        drift_ppb=draw(st.floats(-1e5, 1e5)),
        error_ns=draw(NS),
        round_trip_ns=draw(NS),
        exchanges=draw(st.integers(1, 99)),
    )
    clock = draw(st.one_of(st.none(), st.just(ClockFit(lines=(line,)))))
    name = draw(NAMES)
    found = draw(readings())
    return StorageEnergy(daemon=name, node=name, boot=name, devices=DEVICES, readings=found, clock=clock, interval_ns=5)


@st.composite
def epochs(draw: st.DrawFn, number: int) -> JournalEpoch:
    from_ns = number * 2**61
    spans = [
        Span(stage=stage, start_ns=from_ns + start, end_ns=from_ns + start + length, thread=thread)
        for start, length, stage, thread in draw(
            st.lists(st.tuples(st.integers(-9, 99), st.integers(0, 99), st.sampled_from(list(Stage)[:3]), NAMES))
        )
    ]
    cpu = draw(
        st.one_of(
            st.none(), st.builds(CpuUse, train_ns=NS, preprocess_ns=NS, read_ns=NS, node_ns=st.one_of(st.none(), NS))
        )
    )
    return JournalEpoch(
        epoch=draw(st.integers(0, 9)),
        from_ns=from_ns,
        to_ns=from_ns + draw(st.integers(1, 2**60)),
        samples=draw(st.integers(0, 2**40)),
        whole=draw(st.booleans()),
        spans=tuple(sorted(spans, key=lambda one: (one.start_ns, one.end_ns, one.stage, one.thread))),
        cpu=cpu,
        file=draw(st.text(max_size=8)),
        recording=draw(st.one_of(st.none(), st.integers(1, 99))),
        storage=draw(st.lists(storages(), max_size=2).map(tuple)),
    )


LOADER = st.builds(
    LoaderFacts,
    node=NAMES,
    boot=NAMES,
    rank=st.integers(0, 3),
    pid=st.integers(1, 2**22),
    number=st.integers(0, 3),
    begun_real_ns=NS,
    world_size=st.just(4),
    batch_size=st.one_of(st.none(), st.integers(1, 99)),
)


@given(loader=LOADER, data=st.data())
def test_what_is_written_is_read_and_a_torn_line_takes_only_itself(loader: LoaderFacts, data: st.DataObject) -> None:
    noted = tuple(data.draw(epochs(number)) for number in range(data.draw(st.integers(0, 3))))
    later = data.draw(st.lists(storages(), max_size=2).map(tuple))
    with TemporaryDirectory() as name:
        folder = Path(name)
        with JournalFile(folder, loader) as journal:
            for epoch in noted:
                journal.add(epoch)
        assert read_journals(folder) == (Journal(loader=loader, epochs=noted),)
        whole = journal.path.read_bytes()
        if noted:
            torn = data.draw(st.integers(1, len(whole.splitlines(keepends=True)[-1])))
            journal.path.write_bytes(whole[:-torn])
            assert read_journals(folder) == (Journal(loader=loader, epochs=noted[:-1]),)
        with JournalFile(folder, loader) as second:
            for epoch in noted:
                second.add(epoch)
                second.add_storage(epoch, later)
        journal.path.unlink()
        (found,) = read_journals(folder)
        assert [epoch.storage for epoch in found.epochs] == [later] * len(noted)
