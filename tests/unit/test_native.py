"""The C library and NumPy give the same results, and without the library nothing is missing.

Covers: checksums, frames, permutations; a library that is not there, is of another version or is switched off. Does not
cover: speed (emlio-bench), wheels (e2e/test_install.py).
"""

import copy
import ctypes
import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio import native
from emlio.checksum import crc32c
from emlio.errors import ConfigError
from emlio.formats.plain import check_plain, checksums_of
from emlio.native import library as native_library
from emlio.planner.permutation import Permutation
from emlio.tfrecord import check_frames, frame

_ROOT = Path(__file__).parents[2]
_SIZES = [1, 2, 3, 5, 16, 100, 4095, 4096, 4097, 999_983, 10**6, 10**9, 2**40 - 1, 2**40]


def _setup() -> ModuleType:
    """Return the module that builds the library, without building a package."""
    source = (_ROOT / "setup.py").read_text().replace("\nsetup(", "\n(lambda **given: None)(")
    made = ModuleType("setup_of_emlio")
    made.__file__ = str(_ROOT / "setup.py")
    exec(compile(source, made.__file__, "exec"), made.__dict__)
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built of the sources as they are."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools, which builds the library, is not installed")
    setup = _setup()
    if not setup.compiler():
        pytest.skip("there is no C compiler on PATH, or EMLIO_NATIVE=0 is set")
    path = tmp_path_factory.mktemp("native") / native_library.LIBRARY_NAME
    assert setup.build_library(path)
    return path


@pytest.fixture
def library(built: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """The library, used by this process."""
    found = native_library.Library(built)
    assert found.free is not None, found.reason
    monkeypatch.setattr(native_library, "_LIBRARY", found)
    return found.free


@pytest.fixture
def numpy_only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call a function as if there were no library."""
    absent = native_library.Library(Path("/nowhere/libemlio_native.so"))

    def call(function: Any, *arguments: Any, **named: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(native_library, "_LIBRARY", absent)
            return function(*arguments, **named)

    return call


def _random(size: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).bytes(size)


# ---- checksums -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["emlio_crc32c", "emlio_crc32c_by_table"])
def test_checksums_are_those_of_the_package_at_every_length_and_alignment(library: ctypes.CDLL, way: str) -> None:
    function = getattr(library, way)
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32), ctypes.c_uint32
    data = np.frombuffer(_random(100_000), np.uint8)
    lengths = [*range(800), 2303, 2304, 2305, 24_575, 24_576, 24_577, 49_152, 75_000, 99_990]
    for length in lengths:
        for offset in (0, 1, 7):
            part = data[offset : offset + length]
            assert function(part.ctypes.data, len(part), length) == crc32c(part.data, length), (length, offset)


@pytest.mark.usefixtures("library")
def test_checksums_of_records_are_the_same_with_and_without_the_library(numpy_only: Any) -> None:
    sizes = np.array([0, 1, 15, 16, 17, 1000, 30_000], np.int64)
    payload = memoryview(_random(int(sizes.sum()) + 5))
    assert checksums_of(payload, sizes).tolist() == numpy_only(checksums_of, payload, sizes).tolist()
    bad = np.zeros(len(sizes), np.uint32)
    one, other = (call(check_plain, payload, sizes, bad, verify=True) for call in (_directly, numpy_only))
    assert [fault.reason for fault in one.faults] == [fault.reason for fault in other.faults]


@pytest.mark.usefixtures("library")
def test_the_checksum_of_ranges_follows_from_theirs() -> None:
    sizes = np.array([40_000, 0, 1, 300_000, 300_000, 77_777], np.int64)
    payload = memoryview(_random(int(sizes.sum())))
    assert native.joined_checksum(checksums_of(payload, sizes), sizes) == crc32c(payload)
    short = np.ones(100, np.int64)
    assert native.joined_checksum(checksums_of(payload, short), short) is None, "computing it is as fast"


@pytest.mark.usefixtures("library")
def test_files_are_read_up_to_the_first_that_cannot_be_in_full(tmp_path: Path) -> None:
    text = _random(1000)
    (tmp_path / "file").write_bytes(text)
    out = np.zeros(600, np.uint8)
    with (tmp_path / "file").open("rb") as file:
        good = file.fileno()
        for bad, offset, size, place in (
            (good, 901, 100, 500),
            (-1, 0, 1, 0),
            (good, 0, 1, 600),
            (good, -1, 1, 0),
            (good, 0, -1, 0),
        ):
            columns = ([good, good, bad, good], [0, 500, offset, 0], [200, 300, size, 1], [300, 0, place, 0])
            assert native.read_files(*(np.array(column, np.int64) for column in columns), out) == 2
            assert bytes(out[:300]) == text[500:800]
            assert bytes(out[300:500]) == text[:200]


def _directly(function: Any, *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"])
def test_a_copy_of_a_permutation_reads_its_own_parameters(copied: Any) -> None:
    given = Permutation(5000, b"key")
    again = copied(given)
    expected = given.forward(np.arange(5000))
    parameters = given._native._parameters
    ctypes.memset(ctypes.addressof(parameters), 0, ctypes.sizeof(parameters))  # as freed memory may be
    assert again._native.permute(np.arange(5000), None, inverse=False).tolist() == expected.tolist()


@pytest.mark.usefixtures("library")
def test_nothing_is_read_behind_arrays_that_are_too_short() -> None:
    starts, ends = np.zeros(100_000, np.int64), np.zeros(1, np.int64)
    assert native.checksums(memoryview(b"0123456789"), starts, ends) is None
    with pytest.raises(ValueError, match="broadcast"):
        Permutation(1_000_000, b"key").forward(np.arange(100_000), np.arange(3))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3), (0, 11), (2**62, 2**62 + 1)])
def test_a_range_outside_the_payload_is_not_read(start: int, end: int) -> None:
    starts, ends = np.array([0, start], np.int64), np.array([2, end], np.int64)
    assert native.checksums(memoryview(bytes(10)), starts, ends) is None


# ---- frames ----------------------------------------------------------------------------------------------------------


def _run(sizes: list[int], seed: int = 3) -> tuple[bytearray, npt.NDArray[np.int64]]:
    frames = [frame(_random(size, seed + number)) for number, size in enumerate(sizes)]
    return bytearray(b"".join(frames)), np.array([len(one) for one in frames], np.int64)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("sizes", [[0], [1], [1000] * 40, [5, 0, 70_000, 3], list(range(300))])
@pytest.mark.parametrize("verify", [True, False])
def test_frames_are_found_where_numpy_finds_them(numpy_only: Any, sizes: list[int], *, verify: bool) -> None:
    payload, lengths = _run(sizes)
    found = native.check_frames(memoryview(payload), lengths, verify=verify)
    expected = numpy_only(check_frames, memoryview(payload), lengths, verify=verify)
    assert found is not None
    assert expected.faults == ()
    assert found[0].tolist() == expected.starts.tolist()
    assert found[1].tolist() == expected.ends.tolist()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("sizes", [[40, 41, 42], [100] * 30])
@pytest.mark.parametrize("at", ["length", "data", "crc"])
def test_a_damaged_frame_is_described_as_without_the_library(numpy_only: Any, sizes: list[int], at: str) -> None:
    payload, lengths = _run(sizes)
    second = int(lengths[0])
    payload[second + {"length": 2, "data": 20, "crc": int(lengths[1]) - 1}[at]] ^= 4
    assert native.check_frames(memoryview(payload), lengths, verify=True) is None
    found = check_frames(memoryview(payload), lengths, verify=True)
    expected = numpy_only(check_frames, memoryview(payload), lengths, verify=True)
    assert [(fault.position, fault.reason) for fault in found.faults] == [
        (fault.position, fault.reason) for fault in expected.faults
    ]
    assert [fault.position for fault in found.faults] == [1]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("change", [[1, 0, 0], [0, 0, -1], [-(2**62), 2**62, 0], [2**62, 0, 0], [-100, 50, 50]])
def test_sizes_that_do_not_fill_the_payload_are_refused(change: list[int]) -> None:
    payload, lengths = _run([30, 40, 50])
    changed = lengths + np.array(change, np.int64)
    assert native.check_frames(memoryview(payload), changed, verify=True) is None
    assert len(check_frames(memoryview(payload), changed, verify=True).faults) == 3


@pytest.mark.usefixtures("library")
def test_frames_in_a_part_of_a_larger_buffer_are_read_from_that_part() -> None:
    payload, lengths = _run([30, 40])
    found = native.check_frames(memoryview(b"xyz" + payload + b"!")[3:-1], lengths, verify=True)
    assert found is not None
    assert found[0].tolist() == [12, 58]


# ---- permutations ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("n", _SIZES)
@pytest.mark.parametrize("tweaked", [False, True])
def test_a_permutation_is_the_same_with_and_without_the_library(numpy_only: Any, n: int, *, tweaked: bool) -> None:
    permutation = Permutation(n, b"key of %d" % n)
    draw = np.random.default_rng(n % 1000)
    places = draw.integers(0, n, 3000) if n > 3000 else np.arange(n)
    tweaks = draw.integers(0, 2**40, len(places)) if tweaked else None
    for function in (permutation.forward, permutation.inverse):
        assert np.array_equal(function(places, tweaks), numpy_only(function, places, tweaks))
    assert np.array_equal(permutation.inverse(permutation.forward(places, tweaks), tweaks), places)


@pytest.mark.usefixtures("library")
def test_a_whole_permutation_is_a_permutation() -> None:
    permutation = Permutation(70_001, b"whole")
    assert np.array_equal(np.sort(permutation.forward(np.arange(70_001))), np.arange(70_001))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("value", [-1, 100, 2**62])
def test_a_place_that_there_is_not_is_refused(value: int) -> None:
    with pytest.raises(ConfigError, match=r"places must be in \[0, 100\)"):
        Permutation(100, b"k").forward(np.array([3, value], np.int64))


@pytest.mark.usefixtures("library")
def test_strided_places_are_read_as_they_are(numpy_only: Any) -> None:
    permutation, places = Permutation(1000, b"k"), np.arange(1000)[::-3]
    assert np.array_equal(permutation.forward(places), numpy_only(permutation.forward, places))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("n", "rows", "columns", "rounds"),
    [(0, 1, 1, 12), (100, 5, 5, 12), (100, 0, 100, 12), (100, 10, 10, 0), (100, 10, 10, 25), (2**41, 2**21, 2**21, 12)],
)
def test_an_impossible_permutation_is_refused_by_the_library(n: int, rows: int, columns: int, rounds: int) -> None:
    made = native.NativePermutation(n, rows, columns, [(3, 5)] * rounds)
    assert made.permute(np.zeros(1, np.int64), None, inverse=False) is None


# ---- the library itself ----------------------------------------------------------------------------------------------


def test_a_library_of_another_version_is_not_used(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "ABI", native_library.ABI + 1)
    found = native_library.Library(built)
    assert found.free is None
    assert f"it has version {native_library.ABI - 1} of its functions, {native_library.ABI} is needed" in found.reason


def test_a_file_that_is_no_library_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / native_library.LIBRARY_NAME
    path.write_bytes(b"no library")
    found = native_library.Library(path)
    assert found.free is None
    assert f"{path} cannot be used" in found.reason


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_variable_switches_the_library_off(value: str) -> None:
    program = "from emlio import native; print(native.is_used()); print(native.why_not())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "EMLIO_NATIVE": value},
        capture_output=True,
        text=True,
        check=True,
    )
    used, reason = done.stdout.splitlines() if value == "0" else (*done.stdout.splitlines(), "")[:2]
    assert (used == "True") is (reason == "")
    if value == "0":
        assert (used, reason) == ("False", "EMLIO_NATIVE=0 is set")


def test_a_compiler_that_fails_leaves_a_package_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools, which builds the library, is not installed")
    monkeypatch.setenv("CC", "false")
    monkeypatch.delenv("EMLIO_NATIVE", raising=False)
    assert _setup().build_library(tmp_path / "lib.so") is False
    assert "was not built" in capsys.readouterr().err
