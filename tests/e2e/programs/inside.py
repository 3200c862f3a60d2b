"""Runs programs where a dataset is mounted, and writes down what each said. Imports nothing of EMLIO: inside.py JOB OUT."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any

_LIMIT_S = 240.0

_START = """
import hashlib, os
D, W, U = os.environ["D"] + "/", os.environ["W"], os.environ["U"]

def files(below=""):
    found = []
    for folder, _, names in os.walk(D + below):
        found += (os.path.relpath(os.path.join(folder, name), D) for name in names)
    return sorted(name for name in found if os.path.isfile(D + name) and not os.path.islink(D + name))

def digest(name):
    with open(D + name, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()

def say(*what):
    short = [hashlib.sha256(one).hexdigest() if isinstance(one, bytes | bytearray) else one for one in what]
    text = repr(short)
    print(text if len(text) < 300 else hashlib.sha256(text.encode()).hexdigest())
"""


_SHELL = """
digest() { sha256sum | cut -c1-64; }
git() { command git -c safe.directory='*' "$@"; }
"""


def _run(program: dict[str, Any], place: str) -> dict[str, Any]:
    if program["python"]:
        words = [sys.executable, "-c", _START + program["python"]]
    else:
        words = ["sh", "-c", _SHELL + program["shell"]]
    environment = {**os.environ, "W": place, "HOME": place, "XDG_CACHE_HOME": place, "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            words,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"status": "too late", "said": "", "errors": ""}
    return {
        "status": done.returncode,
        "said": done.stdout.decode(errors="backslashreplace"),
        "errors": done.stderr.decode(errors="replace")[-1500:],
    }


def main() -> None:
    """Run all, one after the other."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    os.environ.update(job["environment"])
    found: dict[str, Any] = {}
    for number, program in enumerate(job["programs"]):
        place = f"{job['scratch']}/{number}"
        os.mkdir(place)
        found[program["name"]] = _run(program, place)
        subprocess.run(["chmod", "-R", "u+w", place], check=False)
        shutil.rmtree(place)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(found, file)


main()
