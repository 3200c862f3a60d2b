"""A real Prometheus with the alerts of deploy/prometheus, faster by sixty times or as they are."""

import http
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["PROGRAM", "Prometheus"]

PROGRAM: Final = os.environ.get("EMLIO_PROMETHEUS") or shutil.which("prometheus")
"""The program, if there is one."""

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_HERE: Final = "127.0.0.1"
_SOON_S: Final = 60.0


def _in_seconds(rules: str) -> str:
    """Return the rules with a second for each minute."""
    hours = re.sub(r"\b(\d+)h\b", lambda found: f"{60 * int(found[1])}m", rules)
    return re.sub(r"\b(\d+)m\b", lambda found: f"{found[1]}s", hours)


class Prometheus:
    """A running Prometheus that looks every half second; every fifteen with the rules as they are."""

    def __init__(self, folder: Path, daemons: Sequence[str], loaders: Sequence[str], *, faster: bool = True) -> None:
        rules = (_DEPLOY / "prometheus/rules.yml").read_text(encoding="utf-8")
        (folder / "rules.yml").write_text(_in_seconds(rules) if faster else rules, encoding="utf-8")
        jobs = [
            {"job_name": name, "static_configs": [{"targets": list(targets)}]}
            for name, targets in (("emlio-daemon", daemons), ("emlio-loader", loaders))
            if targets
        ]
        every, within = ("500ms", "500ms") if faster else ("15s", "10s")
        usual = {"scrape_interval": every, "scrape_timeout": within, "evaluation_interval": every}
        config = {"global": usual, "rule_files": ["rules.yml"], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self._log = folder / "prometheus.log"
        words = [str(PROGRAM), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen([*words, f"--web.listen-address={_HERE}:0"], stdout=out, stderr=out)

    def _get(self, path: str) -> Any:
        at = self._log.read_text(encoding="utf-8").rpartition('Listening on" address=')[2].split()
        if not at or not at[0].startswith(f"{_HERE}:"):
            return None
        try:
            with urllib.request.urlopen(f"http://{at[0]}/api/v1/{path}", timeout=_SOON_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:  # it is starting
                return None
            raise AssertionError(f"{path}: {error.read().decode()}") from error
        except urllib.error.URLError:
            return None

    def ask(self, question: str) -> list[Any]:
        """Return the answer; nothing while it starts."""
        found = self._get(f"query?{urllib.parse.urlencode({'query': question})}")
        return [] if found is None else list(found["result"])

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        found = self._get("alerts")
        return (
            set()
            if found is None
            else {one["labels"]["alertname"] for one in found["alerts"] if one["state"] == "firing"}
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
