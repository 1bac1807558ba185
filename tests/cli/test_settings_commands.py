from __future__ import annotations

import json

import pytest

from odar.errors import ProviderError, ProviderUnreachable


def test_config_shows_values_and_their_origins(odar, provider, monkeypatch):
    monkeypatch.setenv("ODAR_SLOW_MAX_TOKENS", "99")
    result = odar("config", "--set", "fast.top_p=0.5", "--json")
    tree = json.loads(result.out)
    assert tree["fast.top_p"]["value"] == 0.5
    assert tree["fast.top_p"]["origin"] == "argument"
    shown = tree["slow.max_tokens"]
    assert (shown["value"], shown["origin"], shown["variable"]) == (99, *2 * ("ODAR_SLOW_MAX_TOKENS",))
    assert "tokens" in shown["meaning"]
    assert tree["fast.model"]["origin"] == "odar.toml"
    assert tree["routing.tau1"]["origin"] == "profile tiny"
    assert tree["models.m.provider"]["value"] == "script"
    assert "providers.openai.base_url" not in tree


def test_config_of_one_key_or_table(odar, provider):
    keys = set(json.loads(odar("config", "--json", "fusion").out))
    assert "fusion.beta" in keys
    assert all(key.startswith("fusion.") for key in keys)
    assert "OPENAI_API_KEY" in odar("config", "providers.openai").out
    result = odar("config", "fusoin")
    assert (result.code, "did you mean" in result.err) == (2, True)


def test_set_takes_any_name(odar, provider):
    shown = odar("config", "--set", "profile=paper", "--config", "/dev/null", "--json", "profile")
    assert json.loads(shown.out)["profile"]["value"] == "paper"
    for name in ("config", "environ"):
        result = odar("config", "--set", f"{name}=x")
        assert (result.code, f'unknown setting {name} = "x" in argument' in result.err) == (2, True)


def test_config_shows_an_infinite_beta_as_valid_json(odar, provider):
    tree = json.loads(odar("config", "--json", "--profile", "paper", "fusion.beta").out)
    assert tree["fusion.beta"]["value"] == "inf"


def test_models_lists_capabilities_and_prices(odar, provider):
    table = odar("models").out
    assert "m (fast, slow)" in table
    assert "unknown" in table
    assert "free" in table
    cards = {card["name"]: card for card in json.loads(odar("models", "--json").out)}
    assert cards["claude-4.5-sonnet"]["logprobs"] is False
    assert cards["deepseek-v3.2"]["price"] is None


def test_doctor_reports_each_agent(odar, provider):
    result = odar("doctor")
    assert result.code == 0
    assert "fast agent: m by script: scripted" in result.out
    assert "the same weights (m)" in result.out
    assert "settings file: odar.toml" in result.out


def test_doctor_names_the_remedy(odar, provider):
    result = odar("doctor", "--profile", "paper", "--config", "/dev/null")
    assert result.code == 1
    assert "set OPENAI_API_KEY" in result.out
    assert "returns no log-probabilities" in result.out
    findings = json.loads(odar("doctor", "--json", "--profile", "paper", "--config", "/dev/null").out)
    assert any(not finding["ok"] for finding in findings)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ProviderError("HTTP 401: wrong key", status=401), "replace the key by a valid one"),
        (ProviderUnreachable("cannot connect"), "start the server, or check the network connection"),
        (ProviderError("does not list 'm'"), "name another fast.model in odar.toml"),
    ],
)
def test_the_remedy_of_doctor_fits_the_error(odar, provider, monkeypatch, error, remedy):
    async def check(model: str = "") -> str:
        raise error

    monkeypatch.setattr(provider, "check", check)
    result = odar("doctor")
    assert (result.code, remedy in " ".join(result.out.split())) == (1, True)


def test_doctor_names_every_folder_with_its_size(odar, provider, tmp_path, monkeypatch):
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "calibration").mkdir(parents=True)
    (tmp_path / "cache" / "calibration" / "a.jsonl").write_bytes(b"x" * 1_500_000)
    store = tmp_path / "traces.db"
    found = json.loads(odar("doctor", "--json", "--set", f"store.url={store}").out)
    places = [finding["text"] for finding in found if finding["topic"] == "on disk"]
    assert places == [
        f"traces and keys: {store} (nothing there yet)",
        f"weights: {tmp_path}/cache/weights (nothing there yet)",
        f"calibration records: {tmp_path}/cache/calibration (1.5 MB)",
        f"records of advise: {tmp_path}/cache/advice (nothing there yet)",
        f"statistics of served answers: {tmp_path}/traces.alignment.json (nothing there yet)",
    ]


def test_doctor_hides_the_password_of_the_store(odar, provider):
    found = odar("doctor", "--set", "store.url=postgresql://me:s3cret@db.host/odar").out
    assert "traces and keys: postgresql+psycopg://me:***@db.host/odar" in found
    assert "s3cret" not in found


def test_config_hides_secrets_in_extra_fields(odar, provider, tmp_path):
    with (tmp_path / "odar.toml").open("a") as file:
        file.write("""
[models.n]
provider = "script"
extra = { api_token = "s3cret", max_tokens = 7, nested = { key = "s3cret" }, stops = ["http://a:s3cret@b"] }
""")
    for options in ((), ("--json",)):
        shown = odar("config", "models.n", *options).out
        assert "s3cret" not in shown
        assert "max_tokens" in shown
        assert "7" in shown


def test_doctor_names_missing_packages_and_the_remedy(odar, provider, monkeypatch):
    from odar.cli import doctor

    def version(package):
        if package == "xllamacpp":
            raise doctor.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(doctor, "version", version)
    result = odar("doctor")
    assert result.code == 1
    assert "no   xllamacpp: not installed" in result.out
    assert "-m pip install xllamacpp" in result.out
    (missing,) = [each for each in json.loads(odar("doctor", "--json").out) if not each["ok"]]
    assert (missing["topic"], missing["text"]) == ("xllamacpp", "not installed")


def test_an_unknown_choice_gets_a_suggestion(odar, provider):
    for key, word, known in (
        ("gateway.image_urls", "publik", "public"),
        ("gateway.log_format", "jsn", "json"),
        ("fusion.similarity", "lexicle", "lexical"),
    ):
        result = odar("config", "--set", f"{key}={word}")
        assert (result.code, result.out) == (2, "")
        assert f'{key} = "{word}" in argument must be one of' in result.err and known in result.err


def test_piped_tables_are_not_cut(odar, provider, tmp_path):
    name = "a-model-with-a-name-that-is-longer-than-a-line-of-a-terminal-" * 2
    with (tmp_path / "odar.toml").open("a") as file:
        file.write(f'\n[models."{name}"]\nprovider = "openai"\nprice = {{input = 1.5, output = 2.5}}\n')
    row = next(line for line in odar("models").out.splitlines() if line.startswith("a-model"))
    assert row.split()[0] == name and "1.5" in row


def test_doctor_suggests_a_second_agent_of_another_family(odar, provider, tmp_path, monkeypatch):
    """The price nearest to that of the fast model counts, among the providers that have a key."""
    more = """
[providers.other]
kind = "scripted"
api_key_env = "OTHER_KEY"
[providers.locked]
kind = "scripted"
api_key_env = "LOCKED_KEY"
[models.strong]
provider = "script"
family = "a"
price = { input = 20, output = 40 }
[models.near]
provider = "other"
family = "b"
price = { input = 1, output = 3 }
[models.dear]
provider = "other"
family = "b"
price = { input = 9, output = 20 }
[models.same]
provider = "other"
family = "a"
price = { input = 1, output = 2 }
[models.without_key]
provider = "locked"
family = "c"
price = { input = 1, output = 2 }
"""
    monkeypatch.setenv("OTHER_KEY", "sk-test")
    toml = (tmp_path / "odar.toml").read_text().replace('[slow]\nmodel = "m"', '[slow]\nmodel = "strong"')
    toml = toml.replace("[models.m]\n", '[models.m]\nfamily = "a"\n')
    (tmp_path / "odar.toml").write_text(toml + more)
    findings = {each["topic"]: each for each in json.loads(odar("doctor", "--json").out)}
    assert findings["second agent"]["remedy"].startswith("--second near")
    settled = json.loads(odar("doctor", "--json", "--set", "second.model=near").out)
    assert not [
        each for each in settled if each["topic"] == "second agent" and each["remedy"].startswith("--second")
    ]
    alike = json.loads(odar("doctor", "--json", "--set", "second.model=same").out)
    assert [each for each in alike if each["remedy"].startswith("--second near")]
