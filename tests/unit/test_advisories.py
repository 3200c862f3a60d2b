import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from advisories import Answer, Verdict, answer_in, settle
from pins import Pin, in_rounds, installed_in, named_by

NUMPY, OLD_NUMPY, ZMQ = Pin("numpy", "2.5.5"), Pin("numpy", "2.4.6"), Pin("pyzmq", "27.3.0")
LOCK = """\
# This file was made
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:aa
    # via
    #   emlio==0 (pyproject.toml)
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:bb
PyZMQ[extra]==27.3.0+local \\
    --hash=sha256:cc
"""
FOUND = {"name": "numpy", "version": "2.5.5", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.5.6", "2.6"]}]}
CLEAN = {"name": "pyzmq", "version": "27.3.0", "vulns": []}
SKIPPED = {"name": "pyzmq", "skip_reason": "Dependency not found: pyzmq (27.3.0)"}


def _report(*dependencies: object) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


class Services:
    """Stands for services: what each of them says, and what each was asked."""

    def __init__(self, **reports: str) -> None:
        self._reports = reports
        self.asked: list[tuple[str, tuple[Pin, ...]]] = []

    def __call__(self, service: str, pins: Sequence[Pin]) -> Answer:
        self.asked.append((service, tuple(pins)))
        if service not in self._reports:
            return Answer(known={}, trouble="no route to host")
        return answer_in(self._reports[service], pins)


def test_a_lock_names_the_versions_for_every_python_and_without_who_built_them() -> None:
    assert named_by(LOCK) == [OLD_NUMPY, NUMPY, ZMQ]


def test_no_round_has_two_versions_of_a_package_and_together_they_have_all() -> None:
    assert list(in_rounds([OLD_NUMPY, NUMPY, ZMQ])) == [[OLD_NUMPY, ZMQ], [NUMPY]]


def test_an_environment_is_asked_what_lies_in_it(tmp_path: Path) -> None:
    information = tmp_path / "lib" / "python3.12" / "site-packages" / "Py_ZMQ-27.3.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Py_ZMQ\nVersion: 27.3.0\n")
    assert installed_in(tmp_path) == [Pin("py-zmq", "27.3.0")]


def test_a_folder_that_is_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="site-packages"):
        installed_in(tmp_path)


def test_it_is_clean_where_every_version_was_looked_up(capsys: pytest.CaptureFixture[str]) -> None:
    services = Services(pypi=_report(CLEAN))
    assert settle("node", [ZMQ], services) is Verdict.CLEAN
    assert services.asked == [("pypi", (ZMQ,))]
    assert "nothing known against any of 1 versions" in capsys.readouterr().out


def test_what_is_found_is_named_with_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert settle("node", [NUMPY, ZMQ], Services(pypi=_report(FOUND, CLEAN))) is Verdict.FOUND
    assert "numpy==2.5.5: PYSEC-1 (fixed in 2.5.6, 2.6)" in capsys.readouterr().out


def test_a_package_that_a_service_does_not_know_is_not_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert settle("node", [ZMQ], Services(pypi=_report(SKIPPED))) is Verdict.UNKNOWN
    said = capsys.readouterr().out
    assert "1 of 1 versions could not be looked up" in said
    assert "Dependency not found" in said


def test_what_a_report_leaves_out_is_not_clean() -> None:
    assert settle("node", [ZMQ], Services(pypi=_report())) is Verdict.UNKNOWN
    assert settle("node", [NUMPY], Services(pypi=_report({**FOUND, "version": "1.0", "vulns": []}))) is Verdict.UNKNOWN


def test_without_a_network_nothing_is_clean_and_the_reason_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert settle("node", [ZMQ, NUMPY], Services()) is Verdict.UNKNOWN
    assert "no route to host" in capsys.readouterr().out


def test_a_second_service_is_asked_about_what_the_first_does_not_know() -> None:
    services = Services(pypi=_report(SKIPPED, {**FOUND, "vulns": []}), osv=_report(CLEAN))
    assert settle("node", [NUMPY, ZMQ], services) is Verdict.CLEAN
    assert services.asked == [("pypi", (NUMPY, ZMQ)), ("osv", (ZMQ,))]


def test_something_found_counts_though_something_else_is_unknown() -> None:
    assert settle("node", [NUMPY, ZMQ], Services(pypi=_report(FOUND, SKIPPED))) is Verdict.FOUND


def test_nothing_to_look_up_is_not_clean() -> None:
    assert settle("an empty lock", [], Services(pypi=_report())) is Verdict.UNKNOWN


def test_the_three_outcomes_end_with_three_statuses_none_of_which_is_that_of_a_wrong_call() -> None:
    assert (Verdict.CLEAN, Verdict.FOUND, Verdict.UNKNOWN) == (0, 1, 3)
