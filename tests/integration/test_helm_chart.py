"""The chart as Helm renders it: linted, valid for Kubernetes without unknown fields, and with the daemon's own flags.

Needs the program helm; the schemas of Kubernetes come with the package kubernetes-validate. Does not cover: a cluster.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml", reason="not installed: PyYAML")
PROGRAM = os.environ.get("EMLIO_HELM") or shutil.which("helm")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="helm is not on PATH, and EMLIO_HELM does not say where it is")

CHART = Path(__file__).parents[2] / "deploy/helm/emlio"
OPERATOR = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, whose schemas Kubernetes does not have."""

_RECENT = ("--kube-version", "1.31.0")
"""A Helm that was built by hand takes an old one."""

USUAL = ("datasets.imagenet=/data/imagenet", "data.existingClaim=imagenet", "keys.secret=keys", "keys.clients=clients")


def _helm(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(PROGRAM), *words], capture_output=True, text=True, check=False, timeout=60)


def _rendered(*settings: str, release: str = "emlio") -> list[dict[str, Any]]:
    done = _helm("template", release, str(CHART), *_RECENT, *(word for one in settings for word in ("--set", one)))
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def _kinds(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in documents if one["kind"] == kind]


def test_the_chart_is_linted_strictly() -> None:
    done = _helm("lint", "--strict", str(CHART), *(word for one in USUAL for word in ("--set", one)))
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize(
    "settings",
    [
        USUAL,
        ("datasets.a=/data/a", "insecure=true", "data.hostPath=/mnt/nvme", "replicas=3", "cache.size=10Gi"),
        ("datasets.a=/data/a", "insecure=true", "data.perDaemon.size=1Ti", "data.perDaemon.storageClassName=fast"),
        (*USUAL, "podMonitor.enabled=true", "prometheusRule.enabled=true", "podMonitor.labels.release=prometheus"),
        (*USUAL, "job.enabled=true", "job.image=t:1", "job.command={python,train.py}", "job.dataset=imagenet", "job.ranks=4",
         "job.keysSecret=train-keys", "job.resources.limits.nvidia\\.com/gpu=1"),
        (*USUAL, "networkPolicy.metrics=null", "networkPolicy.clients=null", "priorityClassName=high", "drainSeconds=300"),
        (*USUAL, "tolerations[0].key=gpu", "tolerations[0].operator=Exists", "nodeSelector.disk=nvme", "podAnnotations.a=b",
         "imagePullSecrets[0].name=registry", "extraArgs={--object-cache=10GiB}", "extraEnv[0].name=A", "extraEnv[0].value=b"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("release", ["emlio", "true", "store"])
def test_what_is_rendered_is_valid_for_kubernetes(settings: tuple[str, ...], release: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="not installed: kubernetes-validate")
    documents = _rendered(*settings, release=release)
    assert {"StatefulSet", "Service"} <= {one["kind"] for one in documents}
    for one in documents:
        if one["kind"] not in OPERATOR:
            schemas.validate(one, "1.31", strict=True)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ((), "datasets must name at least one dataset"),
        (("datasets.a=/a",), "keys.secret and keys.clients must name"),
        (("datasets.a=/data/a", "insecure=true"), "datasets.a lies in the volume at /data, so data.existingClaim"),
        (
            (*USUAL, "job.enabled=true", "job.image=t:1", "job.dataset=imagnet"),
            'job.dataset must be one of datasets (imagenet), got "imagnet"',
        ),
        ((*USUAL, "job.enabled=true", "job.image=t:1", "job.dataset=imagenet"), "job.keysSecret must name a Secret"),
        ((*USUAL, "memory=4Gi"), "memory"),
        ((*USUAL, "memroy=4GiB"), "memroy"),
        ((*USUAL, "networkPolicy.enable=false"), "enable"),
        ((*USUAL, "replicas=two"), "replicas"),
        ((*USUAL, "data.hostPath=/mnt"), "data must have one of"),
        ((*USUAL, "job.enabled=true", "job.dataset=imagenet", "job.keysSecret=k"), "job.image must be an image"),
    ],
)
def test_what_is_missing_is_told(settings: tuple[str, ...], told: str) -> None:
    done = _helm("template", "emlio", str(CHART), *_RECENT, *(word for one in settings for word in ("--set", one)))
    assert done.returncode != 0
    assert told in done.stderr


def test_keys_are_mounted_as_files_and_not_as_links() -> None:
    documents = _rendered(
        *USUAL, "job.enabled=true", "job.image=t:1", "job.command={python,train.py}", "job.dataset=imagenet",
        "job.keysSecret=train-keys",
    )  # fmt: skip
    (job,) = _kinds(documents, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert {path: one["subPath"] for path, one in mounts.items()} == {
        "/etc/emlio/keys/secret.key": "secret.key",
        "/etc/emlio/keys/daemons": "daemons",
    }
    names = {one["name"]: one.get("value") for one in container["env"]}
    services = {one["metadata"]["name"] for one in _kinds(documents, "Service")}
    assert names["MASTER_ADDR"].partition(".")[2] in services


def test_an_empty_list_lets_no_one_in() -> None:
    (policy,) = _kinds(_rendered(*USUAL, "networkPolicy.metrics=null"), "NetworkPolicy")
    ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert ports == [5555, 5556]
    (policy,) = _kinds(_rendered(*USUAL, "networkPolicy.metrics=null", "networkPolicy.clients=null"), "NetworkPolicy")
    assert not policy["spec"].get("ingress")


def test_a_pod_may_drain_and_alerts_know_its_job() -> None:
    documents = _rendered(*USUAL, "drainSeconds=300", "podMonitor.enabled=true", "prometheusRule.enabled=true")
    (daemons,) = _kinds(documents, "StatefulSet")
    spec = daemons["spec"]["template"]["spec"]
    assert "--drain-timeout=300s" in spec["containers"][0]["args"]
    assert spec["terminationGracePeriodSeconds"] > 300
    (monitor,) = _kinds(documents, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    job = endpoint["relabelings"][0]
    (rules,) = _kinds(documents, "PrometheusRule")
    assert (job["targetLabel"], f'job="{job["replacement"]}"' in str(rules["spec"])) == ("job", True)
