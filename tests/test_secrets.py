from __future__ import annotations

import base64
import os
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import SettingsError
from odar.secrets import api_key, is_secret, mask_secrets, secrets_in
from odar.settings import ProviderSettings

PASSWORD = st.text("abcXYZ0189-._~!$&()*+,;=:@/?#%", min_size=6, max_size=20)


@given(PASSWORD, st.sampled_from(["http", "postgresql", "postgresql+psycopg", "https"]))
def test_no_password_in_an_address_is_shown(password, scheme):
    shown = mask_secrets(f"store.url = {scheme}://me:{quote(password, safe='')}@host:5432/odar?x=1")
    assert quote(password, safe="") not in shown
    assert "://me:***@host:5432/odar?x=1" in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:pa@ss@host/v1", "http://me:***@host/v1"),  # not quoted as it should be
        ("http://me:pa/ss@host/v1", "http://me:***@host/v1"),
        ("http://:secret@host", "http://:***@host"),
        ("https://host/v1?api_key=s3cret&v=1", "https://host/v1?api_key=***&v=1"),
        ("postgresql://host/db?user=me&password=s3cret", "postgresql://host/db?user=me&password=***"),
        ("https://host/x?X-Goog-Signature=abc&Sig=1", "https://host/x?X-Goog-Signature=***&Sig=1"),
        ("https://host:8000/v1", "https://host:8000/v1"),
        ("me@example.com", "me@example.com"),
        ('"http://a:b@c" and "http://d:e@f"', '"http://a:***@c" and "http://d:***@f"'),
    ],
)
def test_secrets_in_texts_are_masked(text, shown):
    assert mask_secrets(text) == shown


@given(PASSWORD)
def test_a_password_is_found_in_every_encoding(password):
    found = secrets_in(f"https://user:{quote(password, safe='')}@host/v1")
    assert {password, quote(password, safe="")} <= set(found)
    assert base64.b64encode(f"user:{password}".encode()).decode() in found


@pytest.mark.parametrize("url", ["", "http://host/v1", "http://me@host/v1", "not an address", "http://[::1", "?"])
def test_an_address_without_secrets_gives_an_empty_list(url):
    assert secrets_in(url) == []


def test_secret_parameters_are_secrets():
    assert secrets_in("https://host/v1?api-key=a%2Bb&version=3&token=") == ["a%2Bb", "a+b"]


@pytest.mark.parametrize(
    "name", ["Authorization", "x-api-key", "OPENAI_API_KEY", "password", "passwd", "auth_token"]
)
def test_secret_names_are_recognised(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", ["model", "temperature", "content-type", "seed", ""])
def test_other_names_are_not_secret(name):
    assert not is_secret(name)


def provider(**options):
    return ProviderSettings(kind="openai", **options)


def key_file(tmp_path, content=b"sk-from-file\n", mode=0o600):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return provider(api_key_file=str(path))


def test_a_key_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " sk-env\n")
    monkeypatch.setenv("BLANK", "  ")
    assert api_key("p", key_file(tmp_path)) == "sk-from-file"
    assert api_key("p", key_file(tmp_path, b" \n")) is None
    assert api_key("p", provider(api_key_env="OPENAI_API_KEY")) == "sk-env"
    assert api_key("p", provider(api_key_env="BLANK")) is None
    assert api_key("p", provider()) is None


@pytest.mark.skipif(os.name != "posix", reason="no such modes on this system")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_file_readable_by_others_is_rejected(tmp_path, mode):
    with pytest.raises(SettingsError, match=r"can be read by others; run: chmod 600 /.*/key$"):
        api_key("p", key_file(tmp_path, mode=mode))


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ("sk-proj-0123456789", "names no file (hidden: is it the key itself?)"),
        ("/no/such/file", "= '/no/such/file' cannot be read: No such file or directory"),
        ("key.txt", "= 'key.txt' cannot be read: No such file or directory"),
        ("sk-\0zero", "names no file (hidden: is it the key itself?)"),
    ],
)
def test_a_missing_key_file_is_named_unless_it_may_be_the_key(given_, message):
    with pytest.raises(SettingsError) as raised:
        api_key("p", provider(api_key_file=given_))
    assert str(raised.value) == f"providers.p.api_key_file {message}"


def test_a_binary_key_file_is_not_quoted(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read: it is not UTF-8 text") as raised:
        api_key("p", key_file(tmp_path, b"sk-\xff\xfe"))
    assert "xff" not in str(raised.value)
