"""Kubernetes' manifest, the image and the alerts: they name options, ports and metrics that there are."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from emlio import __version__
from emlio.daemon import cli
from emlio.daemon.config import DaemonConfig
from emlio.daemon.metrics.families import DaemonFamilies
from emlio.files.mount.figures import mount_families
from emlio.metrics.loaders import LoaderCollector
from emlio.units import parse_duration_ns

DEPLOY = Path(__file__).parents[2] / "deploy"
yaml: Any = pytest.importorskip("yaml", reason="not installed: PyYAML")


def documents(path: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / path).read_text(encoding="utf-8")))


@pytest.fixture
def pod() -> Any:
    deployment, service = documents("kubernetes/emlio-daemon.yaml")
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    control, data = (port["port"] for port in service["spec"]["ports"])
    assert data == control + 1
    return deployment["spec"]["template"]["spec"]


@pytest.fixture
def config(pod: Any, monkeypatch: pytest.MonkeyPatch) -> DaemonConfig:
    """What the daemon is told by the image and the manifest."""
    entry = re.findall(
        r"^ENTRYPOINT (.*)$", (DEPLOY / "container/Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    program, *arguments = yaml.safe_load(entry[0])
    assert program == "emlio-daemon"
    found: list[DaemonConfig] = []
    monkeypatch.setattr(cli, "serve", lambda config, **_: found.append(config))
    monkeypatch.setattr(cli.native, "guard", lambda: True)  # of this whole process
    monkeypatch.setattr(cli, "set_up_logging", lambda style: None)
    assert cli.main([*arguments, *pod["containers"][0]["args"]]) == 0
    return found[0]


def test_the_daemon_understands_what_it_is_told(pod: Any, config: DaemonConfig) -> None:
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert config.metrics is not None
    assert (config.bind.port, config.data_endpoint.port, config.metrics[1]) == tuple(ports.values())
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] in ports
        assert asked["path"] in ("/healthz", "/readyz")
    assert pod["terminationGracePeriodSeconds"] > config.drain_timeout / 1e9
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] * 10**9 >= (
        parse_duration_ns("1h")
    )


def test_keys_data_and_cache_lie_where_they_are_mounted(pod: Any, config: DaemonConfig) -> None:
    (container,) = pod["containers"]
    mounted = {Path(one["mountPath"]): one for one in container["volumeMounts"]}
    assert config.asks_for_keys
    assert config.keys is not None
    for path in (config.keys / "secret.key", config.keys / "clients"):
        assert mounted[path]["readOnly"], "keys that others could write to are refused"
    assert config.cache_dir in mounted
    assert all(source.directory.parent in mounted for source in config.data)  # type: ignore[union-attr]  # folders
    assert {one["name"] for one in mounted.values()} == {one["name"] for one in pod["volumes"]}


def test_a_container_has_bounds_and_no_rights(pod: Any, config: DaemonConfig) -> None:
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert int(limit.removesuffix("Gi")) << 30 > config.memory + config.group_memory


def _sources() -> str:
    """The code that names the metrics."""
    modules = (DaemonFamilies.__module__, LoaderCollector.__module__, mount_families.__module__)
    return "".join(Path(str(import_module(name).__file__)).read_text(encoding="utf-8") for name in modules)


def test_alerts_name_metrics_that_there_are_and_a_page_says_what_to_do() -> None:
    (rules,) = documents("prometheus/rules.yml")
    (scraped,) = documents("prometheus/prometheus.yml")
    assert scraped["rule_files"] == ["rules.yml"]
    page = (DEPLOY.parent / "docs/operate/failures.md").read_text(encoding="utf-8")
    sources = _sources()
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) == 10
    for rule in alerts:
        assert f"| `{rule['alert']}` |" in page
        for name in re.findall(r"emlio_(?:daemon|loader)_(\w+)", rule["expr"]):
            assert f"{name.removesuffix('_total')}" in sources, name
        for kind in re.findall(r'kind=~?"([^"]+)"', rule["expr"]):
            assert all(f'"{one}"' in sources for one in kind.split("|")), kind


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    board = json.loads((DEPLOY / "grafana/emlio.json").read_text(encoding="utf-8"))
    sources = _sources()
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(asked) > 30
    for expression in asked:
        for name in re.findall(r"emlio_(?:daemon|loader|mount)_(\w+)", expression):
            assert name.removesuffix("_total").removesuffix("_bucket") in sources, name
        assert expression.count("(") == expression.count(")")
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)


def test_the_chart_has_this_version_and_tells_the_daemon_what_it_understands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (about,) = documents("helm/emlio/Chart.yaml")
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    templates = {path.name: path.read_text(encoding="utf-8") for path in (DEPLOY / "helm/emlio").glob("templates/*")}
    with pytest.raises(SystemExit):
        cli.parse_arguments(["--help"])
    known = set(re.findall(r"--([a-z-]+)", capsys.readouterr().out))
    told = {*re.findall(r"--([a-z-]+)=", templates["statefulset.yaml"]), "insecure"}
    assert told <= known, told - known
    (values,) = documents("helm/emlio/values.yaml")
    assert set(re.findall(r"\.Values\.(\w+)", "".join(templates.values()))) == set(values)
    (rules,) = documents("helm/emlio/files/rules.yml")
    assert rules == documents("prometheus/rules.yml")[0]
