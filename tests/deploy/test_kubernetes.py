"""The manifests are consistent with each other, the image and the settings."""

from __future__ import annotations

import pytest

from odar.config import load_settings
from odar.serving.app import create_app
from odar.serving.server import NOTICE_S
from odar.serving.store import CLOSE_S
from odar.settings import GatewaySettings
from support.deploy_files import DEPLOY, dockerfile, read_yaml
from support.live_gateway import MemoryStore

POD = read_yaml("kubernetes/deployment.yaml")["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
LABELS = POD["metadata"]["labels"]


@pytest.fixture
def settings():
    return load_settings(config=DEPLOY / "kubernetes/odar.toml", environ={})


def test_every_manifest_is_listed():
    listed = read_yaml("kubernetes/kustomization.yaml")["resources"]
    there = {file.name for file in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert there - set(listed) == {"kustomization.yaml", "secret.example.yaml", "servicemonitor.yaml"}
    assert set(listed) <= there


def test_the_grace_period_covers_draining(settings):
    pause = float(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    needed = pause + NOTICE_S + settings.gateway.drain_s + CLOSE_S
    assert POD["spec"]["terminationGracePeriodSeconds"] >= needed
    assert settings.gateway.drain_s >= settings.limits.deadline_s


def test_probes_use_existing_routes():
    routes = {route.path for route in create_app(load_settings("tiny", environ={}), store=MemoryStore()).routes}
    probes = {kind: CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in probes.values()} <= routes
    assert probes["readiness"]["path"] == "/readyz"  # 503 while draining
    assert probes["liveness"]["path"] == "/healthz"  # 200 while draining: it must not be killed for leaving
    assert POD["metadata"]["annotations"]["prometheus.io/path"] in routes


def test_ports_are_consistent():
    assert CONTAINER["ports"][0]["containerPort"] == GatewaySettings().port
    assert read_yaml("kubernetes/service.yaml")["spec"]["ports"][0]["targetPort"] == CONTAINER["ports"][0]["name"]
    assert ("EXPOSE", str(GatewaySettings().port)) in dockerfile()


def test_selectors_match_the_pods():
    assert read_yaml("kubernetes/deployment.yaml")["spec"]["selector"]["matchLabels"] == LABELS
    assert read_yaml("kubernetes/service.yaml")["spec"]["selector"] == LABELS
    assert read_yaml("kubernetes/disruption.yaml")["spec"]["selector"]["matchLabels"] == LABELS
    assert read_yaml("kubernetes/network.yaml")["spec"]["podSelector"]["matchLabels"] == LABELS
    assert read_yaml("kubernetes/servicemonitor.yaml")["spec"]["selector"]["matchLabels"] == LABELS
    assert read_yaml("kubernetes/autoscaling.yaml")["spec"]["scaleTargetRef"]["name"] == "odar"


def test_the_pod_has_no_privileges():
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True
    assert CONTAINER["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert POD["spec"]["securityContext"]["runAsNonRoot"] is True
    assert ("USER", f"{POD['spec']['securityContext']['runAsUser']}:10001") in dockerfile()
    assert POD["spec"]["automountServiceAccountToken"] is False


def test_writable_folders_are_mounted():
    mounted = {mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    (volume,) = [arguments for instruction, arguments in dockerfile() if instruction == "VOLUME"]
    assert {volume, "/tmp"} <= mounted


def test_the_example_secret_is_empty():
    secret = read_yaml("kubernetes/secret.example.yaml")
    assert CONTAINER["envFrom"][0]["secretRef"]["name"] == secret["metadata"]["name"]
    for name, value in secret["stringData"].items():
        assert not value or name == "ODAR_STORE_URL"
    environ = {name: value for name, value in secret["stringData"].items() if name.startswith("ODAR_")}
    assert load_settings("tiny", environ=environ).store.url.startswith("postgresql://")
