"""The four commands of README.md that lead to an encrypted set-up, typed on two hosts.

Two network namespaces with a link between them stand for the hosts, and two homes. The commands and the loader's lines are read
out of README.md; only what its reader replaces too is replaced: keys, a folder, the name of a host by its address, what is done
with a batch.

Covers: that the commands do what the text says, and that a host that was not allowed gets nothing. Does not cover: other ways to
exchange keys (test_key_commands), what goes wrong (tests/integration/test_trust).
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from emlio.keys.key import PublicKey
from emlio_bench.link.contract import LinkEnd, LinkSpec
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles

README = Path(__file__).parents[2] / "README.md"
SECTION = "### From nothing to an encrypted set-up on two hosts in four commands"
RECORDS = 700
DEADLINE_S = 60.0
PROGRAMS = {
    "emlio": ("-c", "import sys; from emlio.cli import main; sys.exit(main())"),
    "emlio-daemon": ("-m", "emlio.daemon.cli"),
}
ASK = """
from emlio import EmlioLoader
from emlio.errors import RefusedError
try:
    {}
except RefusedError as error:
    print(error.code)
"""
FOREIGN = ("EMLIO_HOME", "EMLIO_DAEMON_KEY", "XDG_CONFIG_HOME")


def section() -> str:
    return README.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n#")[0]


def typed() -> list[tuple[str, list[str]]]:
    """Each command with the host it is typed on, without its comment."""
    lines = re.findall(r"^    (\w+)\$ (.*)$", section(), re.MULTILINE)
    return [(host, shlex.split(line, comments=True)) for host, line in lines]


def loading() -> str:
    (text,) = re.findall(r"^```python\n(.*?)^```$", section(), re.MULTILINE | re.DOTALL)
    return str(text)


class Host:
    """One of the two: a network, a home."""

    def __init__(self, end: LinkEnd, home: Path) -> None:
        home.mkdir()
        self.address = end.address
        self._end = end
        self._environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        self._environment["HOME"] = str(home)

    def _argv(self, program: str, *words: str) -> list[str]:
        return self._end.command([sys.executable, *PROGRAMS.get(program, ("-c", program)), *words])

    def run(self, program: str, *words: str) -> str:
        ended = subprocess.run(
            self._argv(program, *words),
            env=self._environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    @contextmanager
    def serving(self, folder: Path, program: str, *words: str) -> Iterator[Path]:
        """What runs until it is told to end; its log, once ranks may come."""
        ready, log = folder / "ready.json", folder / "log"
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                self._argv(program, *words),
                env={**self._environment, "EMLIO_DAEMON_READY_FILE": str(ready)}, stderr=errors,
            )  # fmt: skip
            try:
                assert settles(lambda: ready.exists() or process.poll() is not None, DEADLINE_S)
                assert process.poll() is None, log.read_text(encoding="utf-8")
                yield log
                process.send_signal(signal.SIGTERM)
                assert process.wait(DEADLINE_S) == 0
            finally:
                process.kill()
                process.wait()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Mapping[str, Host]]:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"two hosts on one machine: an emulated link {reason}")
    with EmulatedLink(LinkSpec(rtt_ns=0)) as link:
        yield {
            "store1": Host(link.storage, tmp_path / "home-of-store1"),
            "train1": Host(link.training, tmp_path / "home-of-train1"),
            "stranger": Host(link.training, tmp_path / "home-of-a-stranger"),
        }


def test_there_are_four_of_them() -> None:
    assert [(host, words[0]) for host, words in typed()] == [
        ("train1", "emlio"),
        ("store1", "emlio"),
        ("store1", "emlio"),
        ("store1", "emlio-daemon"),
    ]


def test_the_four_commands_lead_to_an_epoch_that_was_encrypted(hosts: Mapping[str, Host], tmp_path: Path) -> None:
    make_dataset(tmp_path / "imagenet", records=RECORDS, shards=3)
    replaced = {"/data/imagenet": str(tmp_path / "imagenet")}

    def filled(text: str) -> str:
        for placeholder, real in replaced.items():
            text = text.replace(placeholder, real)
        return text

    *before, (where, daemon) = typed()
    for host, (program, *words) in before:
        said = hosts[host].run(program, *map(filled, words))
        if words == ["keygen"]:
            replaced[f"KEY_OF_{host.upper()}"] = str(PublicKey.parse(said))
    replaced["@store1:"] = f"@{hosts['store1'].address}:"
    replaced["batch_size=256"] = "batch_size=256, raw=True"
    replaced["    ..."] = "    number += len(batch['record'])"
    load = filled(loading())
    assert "KEY_OF" not in load
    with hosts[where].serving(tmp_path, daemon[0], *map(filled, daemon[1:])) as log:
        protection, records = hosts["train1"].run(f"number = 0\n{load}\nprint(number)\nloader.close()").splitlines()
        assert protection in ("aes-256-gcm", "chacha20-poly1305")
        assert int(records) == RECORDS

        hosts["stranger"].run("emlio", "keygen")
        made = next(line for line in load.splitlines() if line.startswith("loader = "))
        assert hosts["stranger"].run(ASK.format(made)) == "not-admitted"
    assert "Traceback" not in log.read_text(encoding="utf-8")
