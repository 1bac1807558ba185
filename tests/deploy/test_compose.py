"""The compose file: its references exist and its values are consistent."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from odar.config import load_settings
from odar.store.store import CLOSE_S
from support.deploy_files import DEPLOY, read_yaml, seconds

COMPOSE = read_yaml("compose.yaml")
SERVICES = COMPOSE["services"]


@pytest.fixture
def settings():
    return load_settings(config=DEPLOY / "odar.toml", environ={})


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "odar"])
def test_images_are_pinned(name):
    image = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", SERVICES[name]["image"])
    repository, _, tag = image.rpartition(":")
    assert repository
    assert re.search(r"\d+\.\d+", tag), image


def test_every_variable_is_documented(settings):
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    documented = set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(), re.M))
    assert used - documented == {"VLLM_TAG", "ODAR_WEIGHTS", "ODAR_PORT"}  # they have defaults worth keeping
    assert documented <= used


def test_the_files_contain_no_secret():
    for text in ((DEPLOY / name).read_text() for name in ("compose.yaml", ".env.example", "odar.toml")):
        for value in re.findall(r"^\s*\w*(?:PASSWORD|KEY|TOKEN)\w*[=:][ ]*(.*)$", text, re.M):
            assert not value or value.startswith("${"), value


def test_the_gateway_uses_the_served_model_names(settings):
    assert settings.profile == "open"
    for agent in settings.agent_names:
        card = settings.card(settings.agent(agent).model)
        address = urlsplit(settings.providers[card.provider].base_url)
        command = SERVICES[address.hostname]["command"]
        options = dict(part.removeprefix("--").split("=", 1) for part in command)
        assert options.get("served-model-name", options["model"]) == card.id
        assert address.port == 8000
        assert int(options["max-model-len"]) >= settings.limits.max_tokens
        devices = SERVICES[address.hostname]["deploy"]["resources"]["reservations"]["devices"]
        assert len(devices[0]["device_ids"]) == int(options["tensor-parallel-size"])


def test_model_servers_use_different_gpus():
    ids = [
        number
        for service in SERVICES.values()
        for device in service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        for number in device["device_ids"]
    ]
    assert len(ids) == len(set(ids))


def test_the_grace_period_covers_draining(settings):
    needed = settings.gateway.notice_s + settings.gateway.drain_s + CLOSE_S
    assert seconds(SERVICES["odar"]["stop_grace_period"]) >= needed


def test_the_containers_have_no_privileges():
    gateway = SERVICES["odar"]
    assert gateway["read_only"] is True
    assert gateway["cap_drop"] == ["ALL"]
    for name in ("prometheus", "grafana"):  # they have no keys
        assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


def test_volumes_and_files_exist():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume


def test_prometheus_scrapes_existing_services():
    jobs = read_yaml("prometheus/prometheus.yaml")["scrape_configs"]
    targets = [target for job in jobs for each in job["static_configs"] for target in each["targets"]]
    assert {target.split(":")[0] for target in targets} <= set(SERVICES)
    assert "odar:8088" in targets
