"""Every format, served as it lies: each record once, in the plan's order, resumed and taken over.

Covers: epochs over daemons and on this host, a resume with another number of ranks, a daemon that dies in the middle, the
order, labels. Does not cover: each format's columns (tests/unit), damaged files.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from emlio import EmlioLoader, Recovery
from emlio_testing.format_datasets import FORMS, Form
from emlio_testing.processes import DaemonProcess

_RECORDS = 211  # divides by no number of ranks or batches used here
_BATCH = 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("formats")
    for name, form in FORMS.items():
        form.make(top / name, _RECORDS)
    return {name: top / name for name in FORMS}


@pytest.fixture(scope="module")
def daemons(folders: dict[str, Path]) -> Iterator[list[DaemonProcess]]:
    """Two daemons that hold everything."""
    data = {name: Path(form.address(folders[name])) for name, form in FORMS.items()}
    with ExitStack() as stack:
        top = next(iter(folders.values())).parent
        yield [stack.enter_context(DaemonProcess(data, folder=top)) for _ in range(2)]


def _loader(form: Form, address: str, rank: int = 0, ranks: int = 1, **more: object) -> EmlioLoader:
    arguments = {"batch_size": _BATCH, "seed": 5, "rank": rank, "world_size": ranks, "to": "numpy", "ids": True}
    return EmlioLoader(address, **{**arguments, **form.arguments, **more})


def _address(daemons: list[DaemonProcess], name: str) -> str:
    return f"emlio://{','.join(daemon.peer for daemon in daemons)}/{name}"


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("shuffle", ["global", "none", "block", "shard"])
def test_each_record_comes_once_and_is_the_one_of_its_id(
    daemons: list[DaemonProcess], folders: dict[str, Path], name: str, shuffle: str
) -> None:
    form = FORMS[name]
    seen: dict[str, list[int]] = {}
    for where, address in (("there", _address(daemons, name)), ("here", form.address(folders[name]))):
        with _loader(form, address, shuffle=False if shuffle == "none" else shuffle, epochs=2) as loader:
            for epoch in range(2):
                numbers, ids = [], []
                for batch in loader:
                    numbers += form.numbers(batch)
                    ids += batch["__id__"].tolist()
                assert sorted(numbers) == list(range(_RECORDS))
                assert sorted(ids) == list(range(_RECORDS))
                seen[f"{where} {epoch}"] = numbers
                in_order = [number for _, number in sorted(zip(ids, numbers, strict=True))]
                assert in_order == form.order(_RECORDS)
    assert seen["there 0"] == seen["here 0"]
    assert seen["there 1"] == seen["here 1"]
    # Files that are records themselves make one shard of up to 4,096.
    alike = shuffle == "none" or (shuffle == "shard" and name in ("files", "npy", "npz", "npz-inflated"))
    assert (seen["there 0"] == seen["there 1"]) == alike


@pytest.mark.parametrize("name", FORMS)
def test_a_job_goes_on_with_another_number_of_ranks(daemons: list[DaemonProcess], name: str) -> None:
    form, address = FORMS[name], _address(daemons, name)
    numbers: list[int] = []
    with _loader(form, address) as loader:
        for step, batch in enumerate(loader):
            numbers += form.numbers(batch)
            if step == 6:
                state = loader.state_dict()
                break
    assert len(numbers) == 7 * _BATCH
    with ExitStack() as stack:
        ranks = [stack.enter_context(_loader(form, address, rank, 3)) for rank in range(3)]
        for loader in ranks:
            loader.load_state_dict(state)
        for batches in zip(*ranks, strict=True):
            for batch in batches:
                numbers += form.numbers(batch)
    assert sorted(numbers) == list(range(_RECORDS))


@pytest.mark.parametrize("name", FORMS)
def test_another_daemon_takes_over_in_the_middle(folders: dict[str, Path], name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    data = {name: Path(form.address(folders[name]))}
    with ExitStack() as stack:
        first, second = (stack.enter_context(DaemonProcess(data, folder=tmp_path)) for _ in range(2))
        address = _address([first, second], name)
        with _loader(form, address, recovery=Recovery(timeout="20s", heartbeat="1s")) as loader:
            # At most two epochs are here when the daemon dies; the others must come from the other one.
            for epoch in range(5):
                numbers: list[int] = []
                for step, batch in enumerate(loader):
                    numbers += form.numbers(batch)
                    if (epoch, step) == (0, 3):
                        first.kill()
                assert sorted(numbers) == list(range(_RECORDS))


def test_files_bring_their_labels_and_paths(folders: dict[str, Path]) -> None:
    with EmlioLoader(folders["files"], batch_size=_BATCH, to="numpy") as loader:
        assert loader.label_names == {0: "class-0", 1: "class-1", 2: "class-2"}
        for batch in loader:
            assert [loader.label_names[label] for label in batch["label"]] == [
                path.split("/")[0] for path in batch["path"]
            ]
