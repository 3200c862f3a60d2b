"""The fuzzing itself: a defect of each kind is found, kept, and found again from what was kept."""

from pathlib import Path

import pytest

from tests.fuzz.mutate import Mutator
from tests.fuzz.run import Outcome, Work, fuzz_target

_KINDS = {
    1: "KeyError",
    2: "AssertionError: a promise",
    3: "TooSlow",
    4: "MemoryError",
    5: "ended by SIGSEGV",
    6: "ended by SIGVTALRM",
}


def _work(folder: Path, *, runs: int) -> Work:
    return Work(
        name="faulty", module="tests.fuzz.faulty", seed=7, runs=runs, seeds=folder / "seeds", keep=folder / "kept"
    )


def _with_seed(folder: Path, seed: bytes) -> None:
    place = folder / "seeds" / "faulty"
    place.mkdir(parents=True)
    (place / "seed").write_bytes(seed)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_defect_of_each_kind_is_found_and_its_input_kept(kind: int, tmp_path: Path) -> None:
    _with_seed(tmp_path, bytes((kind,)) + b"rest")
    outcome = fuzz_target(_work(tmp_path, runs=1))
    assert len(outcome.findings) >= 1
    path, text = outcome.findings[0]
    assert _KINDS[kind] in text
    assert path.read_bytes() == bytes((kind,)) + b"rest"
    assert path.parent == tmp_path / "kept" / "faulty"


def test_a_defect_that_no_seed_shows_is_found_by_changing_them(tmp_path: Path) -> None:
    _with_seed(tmp_path, b"\0rest")
    outcome = fuzz_target(_work(tmp_path, runs=500))
    assert any("KeyError" in text or "a promise" in text or "MemoryError" in text for _, text in outcome.findings)


def test_documented_errors_are_no_findings(tmp_path: Path) -> None:
    _with_seed(tmp_path, b"\7rest")
    assert fuzz_target(_work(tmp_path, runs=1)) == Outcome(executions=3, seconds=pytest.approx(0, abs=60), findings=())


def test_a_place_that_raises_twice_is_one_finding(tmp_path: Path) -> None:
    place = tmp_path / "seeds" / "faulty"
    place.mkdir(parents=True)
    for number in range(5):
        (place / f"seed{number}").write_bytes(bytes((1, number)))
    outcome = fuzz_target(_work(tmp_path, runs=1))
    assert sum("KeyError" in text for _, text in outcome.findings) == 1


def test_what_cannot_be_fuzzed_is_an_error_and_no_finding(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No module named"):
        fuzz_target(Work(name="none", module="tests.fuzz.no_such_target", runs=1, keep=tmp_path))


def test_the_same_seed_makes_the_same_inputs_and_another_one_others() -> None:
    def made(seed: str) -> list[bytes]:
        mutator = Mutator([b"one input", b"another"], [b"token"], most_bytes=64, seed=seed)
        inputs = [mutator.make() for _ in range(200)]
        mutator.keep(inputs[0])
        return inputs + [mutator.make() for _ in range(200)]

    assert made("a") == made("a")
    assert made("a") != made("b")
    assert max(map(len, made("a"))) <= 64
    assert any(b"token" in data for data in made("a"))
