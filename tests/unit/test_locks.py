import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def _wanted(lock: str) -> list[str]:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    if lock == "node":
        return list(PROJECT["dependencies"])
    if lock == "test":
        script = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
        named = re.search(r"^emlio_environment \.venv-test (\S+) --editable \./benchmarks", script, re.MULTILINE)
        assert named is not None
        benchmarks = tomllib.loads((ROOT / "benchmarks" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        further = [line for line in benchmarks["dependencies"] if line != "emlio"]
        return [*PROJECT["dependencies"], *further, *(line for extra in named[1].split(",") for line in extras[extra])]
    lines = (ROOT / "requirements" / "tools.in").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def _entries(lock: str) -> list[tuple[Requirement, list[str]]]:
    """Each pin with what stands below it."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(Requirement(block.split("\\")[0].strip()), HASH.findall(block)) for block in blocks]


def _holds(marker: Marker | None, python: str) -> bool:
    return marker is None or marker.evaluate({"python_version": python, "python_full_version": f"{python}.4"})


@pytest.mark.parametrize("lock", ["node", "test", "tools"])
@pytest.mark.parametrize("python", PYTHONS)
def test_a_lock_has_one_version_that_fits_of_all_that_is_asked_for(lock: str, python: str) -> None:
    pinned: dict[str, str] = {}
    for requirement, _ in _entries(lock):
        if _holds(requirement.marker, python):
            name = canonicalize_name(requirement.name)
            assert name not in pinned, f"{name} twice on Python {python}"
            pinned[name] = next(iter(requirement.specifier)).version
    assert pinned
    for line in _wanted(lock):
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        assert name in pinned, f"{line}: not in {lock}.lock, which scripts/lock makes"
        assert wanted.specifier.contains(pinned[name], prereleases=True), f"{line}: {lock}.lock has {pinned[name]}"


@pytest.mark.parametrize("lock", ["node", "test", "tools"])
def test_every_pin_is_of_one_version_and_has_hashes(lock: str) -> None:
    for requirement, hashes in _entries(lock):
        assert [one.operator for one in requirement.specifier] == ["=="], str(requirement)
        assert hashes, str(requirement)
        assert requirement.url is None, str(requirement)


@pytest.mark.parametrize("lock", ["node", "test", "tools"])
def test_a_lock_does_not_say_where_packages_come_from(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert not [line for line in text.splitlines() if line.startswith("-")]


def test_what_a_storage_node_installs_is_what_the_tests_ran_with() -> None:
    tested = {str(requirement) for requirement, _ in _entries("test")}
    assert {str(requirement) for requirement, _ in _entries("node")} <= tested


def test_the_locked_environment_can_install_the_checkout_without_fetching_more() -> None:
    names = {requirement.name for requirement, _ in _entries("test")}
    built_with = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert {Requirement(line).name for line in built_with} <= names
