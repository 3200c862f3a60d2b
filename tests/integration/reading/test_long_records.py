"""Single records of every format, from a daemon and from this host."""

from pathlib import Path

import numpy as np
import pytest

from emlio import EmlioDataset
from emlio.errors import DatasetError
from emlio.wire.limits import RECORD_BYTES_PER_REPLY
from emlio_testing.serving import served

pytestmark = pytest.mark.usefixtures("own_cache")


def _long_files(folder: Path) -> list[bytes]:
    folder.mkdir()
    sizes = [10, 0, RECORD_BYTES_PER_REPLY, 3 * RECORD_BYTES_PER_REPLY + 7, 5]
    contents = [np.random.default_rng(number).bytes(size) for number, size in enumerate(sizes)]
    for number, content in enumerate(contents):
        (folder / f"{number}.bin").write_bytes(content)
    return contents


@pytest.mark.parametrize("way", ["daemon", "directory"])
def test_files_longer_than_an_answer_come_whole(tmp_path: Path, way: str) -> None:
    contents = _long_files(tmp_path / "x")
    ids = [3, 1, 0, 4, 2]
    with served(tmp_path / "x") as there:
        address = there if way == "daemon" else tmp_path / "x"
        for _ in range(2):  # the second time their checksums are known
            with EmlioDataset(address, raw=True) as dataset:
                assert [one["record"] for one in dataset.__getitems__(ids)] == [contents[number] for number in ids]


def test_a_file_that_changed_is_not_shown_and_the_others_are(tmp_path: Path) -> None:
    contents = _long_files(tmp_path / "x")
    with served(tmp_path / "x") as address, EmlioDataset(address, raw=True) as dataset:
        assert dataset[0]["record"] == contents[0]
        (tmp_path / "x" / "4.bin").write_bytes(b"other")
        with pytest.raises(DatasetError, match=r"4\.bin"):
            dataset[4]
        assert dataset[3]["record"] == contents[3]
