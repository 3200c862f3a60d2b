"""Each program in each circumstance beside the same program on the folder itself."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from emlio_testing.processes import DaemonProcess
from tests.e2e.programs.circumstances import Circumstance, Command, Places, direct
from tests.e2e.programs.folder import make_binaries, make_folder
from tests.e2e.programs.table import PROGRAMS, Program

__all__ = ["Matrix", "Outcome", "printed"]

_LIMIT_S = 1500.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end and the output of a program.

    Attributes:
        status: of its exit.
        said: on standard output.
        errors: the end of its standard error.
    """

    status: int | str
    said: str
    errors: str

    def difference(self, other: "Outcome") -> str:
        """Return where this one, at a mount, differs from the other, in the folder; "" if it does not."""
        if (self.status, self.said) == (other.status, other.said):
            return ""
        ours, theirs = self.said.splitlines(), other.said.splitlines()
        for number, (mine, their) in enumerate(zip([*ours, ""], [*theirs, ""], strict=False)):
            if mine != their:
                return f"line {number}: {mine!r}, in the folder {their!r}; {self.errors}"
        return f"status {self.status}, in the folder {other.status}; {self.errors}"


class Matrix:
    """A folder, a daemon that serves it, and what the programs did in the folder."""

    def __init__(self, place: Path, programs: Sequence[Program] = PROGRAMS) -> None:
        """Make the folder and start the daemon."""
        self._place = place
        (place / "seen").mkdir()
        for path in (place, *place.parents):
            if path.stat().st_uid == os.getuid() and path != path.parent:
                path.chmod(path.stat().st_mode | 0o055)
        self._folder = place / "data"
        make_folder(self._folder)
        make_binaries(place / "programs")
        if (place / "programs/c_reader").exists():
            shutil.copy(place / "programs/c_reader", self._folder)
        self._daemon = DaemonProcess({"x": f"{self._folder}?format=files"}, folder=place)
        self.missing = {one.name: lack for one in programs if (lack := self._lack(one))}
        self._programs = [one for one in programs if one.name not in self.missing]
        self.wanted = self._outcomes(direct, f"file://{place / 'seen'}")

    def close(self) -> None:
        """End the daemon."""
        self._daemon.kill()

    def compare(self, circumstance: Circumstance) -> Mapping[str, str]:
        """Return how each program differs there from the same in the folder; "" if it does not."""
        found = self._outcomes(circumstance.command, self._daemon.address("x"))
        return {name: found[name].difference(wanted) for name, wanted in self.wanted.items()}

    def _lack(self, program: Program) -> str:
        for need in program.needs:
            start, _, rest = need.partition("/")
            known = {"D": self._folder / rest, "BIN": self._place / "programs" / rest}.get(start)
            there = known.exists() if known else bool(shutil.which(need) or _has_module(need))
            if not there:
                return f"{need.removeprefix('BIN/')} is not there"
        return ""

    def _outcomes(self, command: Command, url: str) -> dict[str, Outcome]:
        scratch = self._place / "scratch"
        scratch.mkdir()
        scratch.chmod(0o777)
        (self._place / "seen").chmod(0o777)
        os.chown(self._place / "seen", 65534, 65534)
        places = Places(
            folder=self._folder,
            directory=self._place / "seen",
            programs=self._place / "programs",
            scratch=scratch,
            address=self._daemon.address("x"),
        )
        environment = {"D": str(places.directory), "U": url, "BIN": str(self._place / "programs")}
        job: dict[str, Any] = {
            "environment": environment,
            "scratch": str(scratch),
            "programs": [asdict(one) for one in self._programs],
        }
        (scratch / "job").write_text(json.dumps(job))
        inside = shlex.join(
            [sys.executable, str(Path(__file__).with_name("inside.py")), f"{scratch}/job", f"{scratch}/out"]
        )
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command(places, inside)],
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": os.pathsep.join(filter(os.path.isdir, sys.path))},
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"status {done.returncode}: {done.stdout}{done.stderr}")
        found = json.loads((scratch / "out").read_text())
        shutil.rmtree(scratch)
        return {name: Outcome(**held) for name, held in found.items()}


def _has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def printed(columns: Mapping[str, Mapping[str, str]], left_out: Mapping[str, str]) -> str:
    """Return the matrix as a table in Markdown: a row for each program, a column for each circumstance."""
    rows = ["| program | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    rows += [
        f"| {name} | " + " | ".join("**differs**" if column[name] else "same" for column in columns.values()) + " |"
        for name in next(iter(columns.values()))
    ]
    rows += [f"| {name} | left out: {reason} |" for name, reason in left_out.items()]
    return "\n".join(rows)
