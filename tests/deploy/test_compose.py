"""The compose file: its references exist and its values are consistent."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from odar.config import load_settings
from odar.serving.server import NOTICE_S
from odar.serving.store import CLOSE_S
from support.deploy_files import DEPLOY, read_yaml, seconds

COMPOSE = read_yaml("compose.yaml")
SERVICES = COMPOSE["services"]


@pytest.fixture
def settings():
    return load_settings(config=DEPLOY / "odar.toml", environ={})


@pytest.mark.parametrize("name", [name for name in SERVICES if SERVICES[name]["image"] != "odar:local"])
def test_images_are_pinned(name):
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}", SERVICES[name]["image"])


def test_every_variable_is_documented(settings):
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    documented = set(re.findall(r"^#?(\w+)=", (DEPLOY / ".env.example").read_text(), re.M))
    assert used - documented == {"ODAR_PORT"}  # it has a default worth keeping
    assert documented <= used


def test_the_files_contain_no_secret():
    for text in ((DEPLOY / name).read_text() for name in ("compose.yaml", ".env.example", "odar.toml")):
        for value in re.findall(r"^\s*\w*(?:PASSWORD|KEY|TOKEN)\w*[=:][ ]*(.*)$", text, re.M):
            assert not value or value.startswith("${"), value


def vllm_options(service):
    model, *options = SERVICES[service]["command"]
    return {"model": model} | dict(part.removeprefix("--").split("=", 1) for part in options)


def test_the_gateway_uses_the_served_model_names(settings):
    assert settings.profile == "open"
    for agent in settings.agent_names:
        card = settings.card(settings.agent(agent).model)
        address = urlsplit(settings.providers[card.provider].base_url)
        options = vllm_options(address.hostname)
        assert options["model"] == card.id
        assert address.port == 8000
        assert int(options["max-model-len"]) >= settings.limits.max_tokens
        assert int(options["seed"]) == settings.seed
        (small,) = [
            each
            for each in SERVICES.values()
            if address.hostname in each.get("networks", {}).get("default", {}).get("aliases", ())
        ]
        assert small["profiles"] == ["cpu"]
        assert f"--name={card.id}" in small["command"]


@pytest.mark.parametrize(("service", "gpu_gb"), [("vllm-fast", 85.5), ("vllm-slow", 150.8)])  # H100 80 GB, H200
def test_the_weights_fit_the_gpus_that_are_reserved(service, gpu_gb):
    entrypoint = dict(part.removeprefix("--").split("=") for part in SERVICES[service]["entrypoint"] if "=" in part)
    gpus = int(entrypoint["gpus"])
    (devices,) = SERVICES[service]["deploy"]["resources"]["reservations"]["devices"]
    assert gpus == int(vllm_options(service)["tensor-parallel-size"]) == devices["count"]
    assert check_gpus().problem([gpu_gb] * gpus, float(entrypoint["weights-gb"]), gpus) == ""


def check_gpus():
    spec = importlib.util.spec_from_file_location("check_gpus", DEPLOY / "check_gpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_check(folder, memory_mib):
    """Run the check as vLLM's container does, with a driver that reports these GPUs."""
    driver = folder / "nvidia-smi"
    driver.write_text("#!/bin/sh\n" + "".join(f"echo {each}\n" for each in memory_mib))
    driver.chmod(0o755)
    command = [
        sys.executable,
        DEPLOY / "check_gpus.py",
        "--weights-gb=690",
        "--gpus=8",
        "--",
        "echo",
        "vllm",
        "serve",
    ]
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("memory_mib", "said"),
    [
        ([81559] * 8, "8 × 86 GB leave 616 GB: 690 GB of weights need 8 GPUs of 101 GB or more"),
        ([143771] * 4, "4 GPUs found, 8 wanted: 690 GB of weights need 8 GPUs of 101 GB or more"),
        ([], "0 GPUs found, 8 wanted"),
    ],
)
def test_weights_that_do_not_fit_fail_at_once_with_one_line(tmp_path, memory_mib, said):
    done = run_check(tmp_path, memory_mib)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and said in done.stderr


def test_weights_that_fit_start_the_server(tmp_path):
    done = run_check(tmp_path, [143771] * 8)
    assert (done.returncode, done.stdout) == (0, "vllm serve\n")


@pytest.mark.parametrize("service", ["vllm-fast", "vllm-slow"])
def test_the_weights_are_pinned(service):
    assert re.fullmatch(r"[0-9a-f]{40}", vllm_options(service)["revision"])


def test_the_grace_period_covers_draining(settings):
    needed = NOTICE_S + settings.gateway.drain_s + CLOSE_S
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
