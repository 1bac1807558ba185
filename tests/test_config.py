from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from odar.calibration_file import load_calibration
from odar.config import PROFILES, environment_name, iter_settings, key_name, load_settings
from odar.errors import SettingsError, UnknownName
from odar.policy.paper import PaperPolicy


def load(tmp_path: Path, toml: str = "", environ: dict[str, str] | None = None, **overrides: object):
    file = tmp_path / "odar.toml"
    file.write_text(toml)
    return load_settings(config=file, environ=environ or {}, **overrides)


def test_arguments_override_environment_overrides_file_overrides_profile(tmp_path):
    toml = "[fast]\nmax_tokens = 100\ntop_p = 0.5\n[slow]\nmax_tokens = 7"
    environ = {"ODAR_FAST_MAX_TOKENS": "200", "ODAR_FAST_TOP_P": "0.6"}
    settings = load(tmp_path, toml, environ, fast__max_tokens=300)
    assert (settings.fast.max_tokens, settings.fast.top_p, settings.slow.max_tokens) == (300, 0.6, 7)
    assert settings.fast.temperature == 0.2
    assert settings.origins["fast", "max_tokens"] == "argument"
    assert settings.origins["fast", "top_p"] == "ODAR_FAST_TOP_P"
    assert settings.origins["slow", "max_tokens"].endswith("odar.toml")
    assert settings.origins["fast", "temperature"] == "profile local"


def test_profiles_have_the_constants_of_the_spec():
    for name in PROFILES:
        models = {"fast__model": "gpt-4.1-nano", "slow__model": "gpt-4.1"} if name == "custom" else {}
        settings = load_settings(name, environ={}, **models)
        calibrated = settings.origins["routing", "tau1"].startswith("calibration")
        taus = (settings.routing.tau1, settings.routing.tau2)
        assert (calibrated or taus == (0.3, 0.7), settings.routing.samples) == (True, 5)
        assert settings.fusion.varentropy_weight == 0.1
        own = {"local": 360, "custom": 180}  # time for five slow samples on two cores; for a long text
        assert settings.limits.deadline_s == own.get(name, 120)
        assert settings.prompts == (
            "paper" if name in ("paper", "open") else "default" if name == "custom" else name
        )
        assert ("\n\n" in settings.fast.stop) == (name == "paper")
    paper = load_settings("paper", environ={})
    fast, slow = paper.fast, paper.slow
    assert (fast.temperature, fast.top_p, fast.max_tokens, fast.timeout_s) == (0.2, 0.9, 512, 10)
    assert (slow.temperature, slow.top_p, slow.max_tokens, slow.timeout_s) == (0.3, 0.95, 1024, 60)
    assert (paper.fast.stop, paper.slow.stop) == (("\n\n", "Q:"), ("Wait", "User:"))
    assert (paper.fast.model, paper.slow.model, paper.fusion.beta) == ("gpt-5.1", "claude-4.5-sonnet", math.inf)
    reference = load_settings("open", environ={})
    assert (reference.fast.temperature, reference.slow.top_p, reference.seed) == (0.6, 0.95, 42)
    assert load_settings("tiny", environ={}).fusion.beta == 0.25


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('dial = "economy"', 'unknown setting dial = "economy" in {file}; did you mean routing.dial?'),
        ("[fast]\ntempratur = 1", "unknown setting fast.tempratur = 1 in {file}; did you mean 'temperature'?"),
        (
            "[fast]\ntemperature = 3",
            "fast.temperature = 3.0 in {file} must be at least 0 and at most 2; the nearest valid value is 2",
        ),
        ("[fast]\ntop_p = 0", "fast.top_p = 0.0 in {file} must be above 0 and at most 1"),
        ("[fast]\nmax_tokens = 1.5", "fast.max_tokens = 1.5 in {file} must be a whole number"),
        ("[fast]\nmax_tokens = true", "fast.max_tokens = true in {file} must be a whole number"),
        ("[fast]\nstop = [1]", "fast.stop = [1] in {file} must be a list of strings"),
        ("fast = 1", "fast = 1 in {file} must be a table"),
        ("[models]\nx = 1", "models.x = 1 in {file} must be a table"),
        ("[models.x]\nid = 'y'", "setting models.x.provider is missing and has no default"),
        ("[second]\neffort = 'low'", "setting second.model is missing and has no default"),
        ("[fusion]\nbeta = nan", "fusion.beta = nan in {file} must be at least 0"),
        ("[fast\n", "{file} is not valid TOML"),
        (
            "[providers.openai]\napi_key = 'sk-secret'",
            "providers.openai.api_key in {file}: keys are not written here",
        ),
    ],
)
def test_a_bad_key_or_value_is_named(tmp_path, toml, message):
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, toml)
    assert str(caught.value).startswith(message.format(file=tmp_path / "odar.toml"))
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ODAR_FAST_TEMPRATURE": "1"}, 'unknown environment variable ODAR_FAST_TEMPRATURE = "1"; did you mean'),
        ({"ODAR_ROUTING_TAU1": "hot"}, 'routing.tau1 = "hot" in ODAR_ROUTING_TAU1 must be a number'),
        ({"ODAR_LIMITS_MAX_CALLS": "0"}, "limits.max_calls = 0 in ODAR_LIMITS_MAX_CALLS must be at least 1"),
    ],
)
def test_a_bad_environment_variable_is_named(environ, message):
    with pytest.raises(SettingsError) as caught:
        load_settings("tiny", environ=environ)
    assert str(caught.value).startswith(message)


def test_a_secret_in_an_unknown_variable_is_not_repeated():
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={"ODAR_OPENAI_API_KEY": "sk-planted"})
    assert "ODAR_OPENAI_API_KEY" in str(caught.value)
    assert "sk-planted" not in str(caught.value)


def test_environment_variables_are_parsed_as_toml():
    environ = {
        "ODAR_FAST_STOP": "a,b",
        "ODAR_SLOW_STOP": '["c,d"]',
        "ODAR_LIMITS_MAX_COST_USD": "none",
        "ODAR_SEED": "7",
    }
    settings = load_settings("tiny", environ=environ)
    assert (settings.fast.stop, settings.slow.stop) == (("a", "b"), ("c,d",))
    assert (settings.limits.max_cost_usd, settings.seed) == (None, 7)


def test_the_profile_is_chosen_by_keys_servers_and_models(tmp_path):
    assert load(tmp_path).profile == "local"
    keys = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}
    assert load(tmp_path, environ=keys).profile == "custom"  # `paper` only by name
    assert load(tmp_path, 'profile = "open"', keys).profile == "open"
    own = load(tmp_path, "[fast]\nmodel = 'ollama/qwen3:4b'\n[slow]\nmodel = 'gpt-4.1'", keys)
    assert (own.profile, own.prompts, own.slow.max_tokens) == ("custom", "default", 2048)
    with pytest.raises(SettingsError, match=r"fast\.model is named but slow\.model is not"):
        load(tmp_path, "[fast]\nmodel = 'gpt-4.1'")
    assert load(tmp_path, 'profile = "open"', {"ODAR_PROFILE": "paper"}).profile == "paper"


def test_a_key_instead_of_a_variable_name_is_not_repeated(tmp_path):
    with pytest.raises(SettingsError, match="not the name of an environment variable") as caught:
        load(tmp_path, "[providers.openai]\napi_key_env = 'sk-proj-SECRET123'")
    assert "SECRET123" not in str(caught.value)


def test_settings_load_without_a_home_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platformdirs.user_config_path", _no_home)
    assert load_settings(environ={}).profile == "local"


def _no_home(name):
    raise RuntimeError("Could not determine home directory.")


def test_a_profile_can_be_a_file(tmp_path):
    with pytest.raises(UnknownName, match="unknown profile 'papr'; did you mean 'paper'"):
        load_settings("papr")
    source = (Path(__file__).parent.parent / "src/odar/profiles/paper.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(source.replace("temperature = 0.3", "temperature = 0.4"))
    assert load_settings(str(mine), environ={}).slow.temperature == 0.4
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(str(tmp_path / "none.toml"), environ={})


def test_a_named_settings_file_must_exist_and_be_text(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(config=tmp_path / "none.toml", environ={})
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(environ={"ODAR_CONFIG": str(tmp_path / "none.toml")})
    (tmp_path / "odar.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings(config=tmp_path / "odar.toml", environ={})


def test_the_file_in_the_working_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odar.toml").write_text("seed = 9")
    assert load_settings(environ={}).seed == 9


def test_thresholds_must_be_in_order():
    with pytest.raises(SettingsError, match=r"routing.tau1 = 0.8 is above routing.tau2 = 0.7"):
        load_settings("tiny", environ={}, routing__tau1=0.8)


def test_a_model_is_one_of_the_catalogue_or_of_a_provider():
    with pytest.raises(UnknownName, match=r"unknown model 'gpt5.1'; did you mean 'gpt-5.1'"):
        load_settings("tiny", environ={}, fast__model="gpt5.1")
    card = load_settings("tiny", environ={}, fast__model="ollama/qwen3:4b").card("ollama/qwen3:4b")
    assert (card.provider, card.id, card.price, card.n) == ("ollama", "qwen3:4b", None, False)


def test_settings_extend_and_override_the_catalogue(tmp_path):
    toml = """
    [models."gpt-5.1"]
    price = { input = 2.0 }
    [models.mine]
    provider = "ollama"
    price = { input = 1.0, output = 2.0 }
    """
    settings = load(tmp_path, toml)
    assert settings.card("gpt-5.1").price.input == 2.0
    assert settings.card("gpt-5.1").price.output == 10.0
    assert settings.card("mine").price.cached == 1.0  # never cheaper than known


def test_a_model_of_an_unconfigured_provider_is_rejected(tmp_path):
    with pytest.raises(UnknownName, match=r"unknown provider of models\.x 'nowhere'"):
        load(tmp_path, "profile = 'tiny'\n[models.x]\nprovider = 'nowhere'")


def test_nested_overrides_do_not_change_the_callers_tables():
    mine = {"x": {"provider": "ollama"}}
    settings = load_settings("tiny", environ={}, models=mine, models__y={"provider": "vllm"}, models__x__n=True)
    assert (settings.models["x"].n, settings.models["y"].provider) == (True, "vllm")
    assert mine == {"x": {"provider": "ollama"}}
    with pytest.raises(SettingsError, match="fast = 1 in argument must be a table"):
        load_settings("tiny", environ={}, fast=1, fast__model="x")


def test_every_setting_has_documentation_and_an_environment_variable():
    for path, _, field in iter_settings():
        assert field.metadata["doc"], key_name(path)
        assert environment_name(path).startswith("ODAR_")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return ./odar.toml, which is found without being named."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "odar.toml"
    path.write_text('[providers.openai]\nbase_url = "http://evil.example"\n')
    return path


@pytest.mark.skipif(os.name != "posix", reason="no owners on this system")
def test_a_discovered_file_must_belong_to_the_user(here, monkeypatch):
    assert load_settings(environ={}).providers["openai"].base_url == "http://evil.example"
    here.chmod(0o646)
    with pytest.raises(SettingsError, match=r"odar\.toml can be written by every user; look at it, then name it"):
        load_settings(environ={})
    here.chmod(0o644)
    owner = here.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner != 0:
        with pytest.raises(SettingsError, match=r"odar\.toml belongs to another user"):
            load_settings(environ={})
    else:  # a file of root is always accepted
        assert load_settings(environ={}).providers["openai"].base_url == "http://evil.example"
        os.chown(here, 12345, 12345)
        with pytest.raises(SettingsError, match=r"odar\.toml belongs to another user"):
            load_settings(environ={})


@pytest.mark.skipif(os.name != "posix", reason="no owners on this system")
@pytest.mark.parametrize("named", [{"config": "odar.toml"}, {"environ": {"ODAR_CONFIG": "odar.toml"}}])
def test_a_named_file_may_have_any_owner_and_mode(here, named):
    here.chmod(0o666)
    assert load_settings(**{"environ": {}, **named}).providers["openai"].base_url == "http://evil.example"


@pytest.mark.parametrize(
    "key", ["providers.openai.base_url", "store.url", "fast.model", "gateway.host", "telemetry.enabled", "profile"]
)
def test_a_calibration_can_set_only_fitted_settings(tmp_path, key):
    path = tmp_path / "calibration.json"
    body = json.loads(load_calibration("tiny").to_json()) | {"settings": {key: "http://evil.example"}}
    path.write_text(json.dumps(body))
    with pytest.raises(SettingsError, match=f"sets {key}; a calibration may only set policy, "):
        load_settings(environ={}, calibration=str(path))


def test_thresholds_by_expert_are_checked():
    settings = load_settings("tiny", environ={}, routing__tau2_by_expert={"math": 0.5})
    policy = PaperPolicy.from_settings(settings.routing)
    assert policy.thresholds_of("math") == (0.3, 0.5)
    assert policy.thresholds_of("code") == (0.3, 0.7)
    with pytest.raises(UnknownName, match=r"expert of routing.tau1_by_expert 'maths'; did you mean 'math'"):
        load_settings("tiny", environ={}, routing__tau1_by_expert={"maths": 0.2})
    with pytest.raises(SettingsError, match=r"for math tau1 = 0.8 is above tau2 = 0.7"):
        load_settings("tiny", environ={}, routing__tau1_by_expert={"math": 0.8})


def test_a_cascade_with_too_many_stages_is_refused():
    with pytest.raises(SettingsError, match=r"routing\.stages has 9 stages; at most 8"):
        load_settings("tiny", environ={}, routing__stages=["slow"] * 9)


def test_an_effort_is_part_of_a_models_name(tmp_path):
    toml = """
    [fast]
    model = "gpt-5.4"
    [slow]
    model = "gpt-5.4"
    effort = "high"
    [agents.expert]
    model = "claude-opus-5-5@low"
    effort = "medium"
    [agents.other]
    model = "gpt-5.4@low"
    [models."gpt-5.4-mini@low"]
    provider = "openai"
    scores = { math = 0.9 }
    """
    settings = load(tmp_path, toml)
    assert [settings.agent(name).model for name in settings.agent_names] == [
        "gpt-5.4",
        "gpt-5.4@high",
        "claude-opus-5-5@medium",
        "gpt-5.4@low",
    ]
    slow = settings.card(settings.slow.model)
    assert (slow.id, slow.effort) == ("gpt-5.4", "high")
    listed = settings.card("gpt-5.4-mini@low")
    assert (listed.id, listed.effort, listed.scores) == ("gpt-5.4-mini", "low", {"math": 0.9})
    with pytest.raises(SettingsError, match=r"slow\.effort"):
        load(tmp_path, "[slow]\neffort = 'hard'")
