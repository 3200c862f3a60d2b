"""The bill of materials of a release: the wheel and every package that comes with it, by version, licence and hash.

Covers: installing the wheel as a storage node does, from the lock; CycloneDX from what then lies there; hashes of the very files.
Does not cover: extras, whose parts the user chooses; Python and the system below it.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["completed", "file_hashes", "main", "write"]

Json = dict[str, Any]


def file_hashes(report: Json) -> dict[str, str]:
    """SHA-256 by package of the files that pip says it installed."""
    return {
        _canonical(one["metadata"]["name"]): one["download_info"]["archive_info"]["hashes"]["sha256"]
        for one in report["install"]
    }


def completed(bill: Json, hashes: Mapping[str, str], *, wheel_sha256: str, machine: str) -> Json:
    """The bill with the hashes of what was installed, and on what kind of machine that was."""
    metadata, components = dict(bill["metadata"]), []
    subject = dict(metadata["component"])
    subject["hashes"] = [{"alg": "SHA-256", "content": wheel_sha256}]
    subject["purl"] = f"pkg:pypi/{subject['name']}@{subject['version']}"
    metadata["component"] = subject
    metadata["properties"] = [*metadata.get("properties", []), {"name": "emlio:installed-on", "value": machine}]
    for component in bill["components"]:
        name = _canonical(component["name"])
        if name not in hashes:
            raise ValueError(f"every component must come from the lock, {name} does not")
        components.append({**component, "hashes": [{"alg": "SHA-256", "content": hashes[name]}]})
    return {**bill, "metadata": metadata, "components": components}


def write(wheel: Path, lock: Path, project: Path, target: Path) -> int:
    """Installs, takes stock, writes; returns how many packages came with the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        node, report, stock = Path(folder) / "node", Path(folder) / "report.json", Path(folder) / "stock.json"
        python = str(node / "bin" / "python")
        # Without pip, so that nothing lies there but what was asked for.
        _run(sys.executable, "-m", "venv", "--without-pip", str(node))
        pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet"]
        locked = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)]
        # What is installed already would be left out of the report; --no-deps leaves it to the check to find what lacks.
        _run(*pip, "install", "--no-compile", "--no-deps", "--report", str(report), *locked)
        _run(*pip, "install", "--no-compile", "--no-deps", "--no-index", str(wheel))
        _run(*pip, "check")
        cyclonedx = [
            sys.executable,
            "-m",
            "cyclonedx_py",
            "environment",
            "--spec-version",
            "1.6",
            "--mc-type",
            "library",
        ]
        _run(*cyclonedx, "--pyproject", str(project), "--output-reproducible", "--output-file", str(stock), python)
        bill = completed(
            json.loads(stock.read_text(encoding="utf-8")),
            file_hashes(json.loads(report.read_text(encoding="utf-8"))),
            wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            machine=f"{sysconfig.get_platform()}, Python {sysconfig.get_python_version()}",
        )
    text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
    _check(text)
    target.write_text(text, encoding="utf-8")
    return len(bill["components"])


def _check(text: str) -> None:
    # Here, not above: only the tools' environment has it, and the rest of this file does not need it.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    amiss = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if amiss is not None:
        raise ValueError(f"a bill of materials must follow CycloneDX 1.6: {amiss}")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(*command: str) -> None:
    # This command's own environment must not decide where modules are found in the other one.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: one wheel, one bill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--lock", type=Path, required=True, help="what a storage node installs, with hashes")
    parser.add_argument("--project", type=Path, required=True, help="pyproject.toml of the wheel")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    given = parser.parse_args(arguments)
    count = write(given.wheel.resolve(), given.lock, given.project, given.out)
    print(f"{given.out}: the wheel and {count} packages")


if __name__ == "__main__":
    main()
