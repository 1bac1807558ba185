"""API keys of providers, and masking of secrets in output and logs."""

from __future__ import annotations

import base64
import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from odar.errors import SettingsError
from odar.files import user_path
from odar.settings import ProviderSettings

_PASSWORD = re.compile(r"(://[^/@:\s\"']*:)([^\s\"']*)")
_SECRET_WORDS = ("auth", "credential", "key", "passw", "secret", "signature", "token")
_PARAMETER = re.compile(r"([?&][^=&#\s\"']*)(?:=[^&#\s\"']*)?")
"""Both patterns also match what is not secret, and so read no character twice."""


def api_key(name: str, provider: ProviderSettings) -> str | None:
    """The provider's key from its environment variable or its file, or None."""
    if provider.api_key_file:
        return _read_key_file(f"providers.{name}.api_key_file", provider.api_key_file)
    return os.environ.get(provider.api_key_env or "", "").strip() or None


def is_secret(name: str) -> bool:
    """Whether the name of a setting, variable or header says that its value is secret."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def mask_secrets(text: str) -> str:
    """A text with passwords and secret parameters of addresses masked.

    >>> mask_secrets("postgresql://me:secret@host/odar")
    'postgresql://me:***@host/odar'
    >>> mask_secrets("https://host/v1?api_key=secret&version=2")
    'https://host/v1?api_key=***&version=2'
    """
    return _PARAMETER.sub(_mask_parameter, _PASSWORD.sub(_mask_password, text))


def _mask_password(match: re.Match[str]) -> str:
    _, at, rest = match[2].rpartition("@")
    return f"{match[1]}***@{rest}" if at else match[0]


def _mask_parameter(match: re.Match[str]) -> str:
    has_value = len(match[0]) > len(match[1])
    return f"{match[1]}=***" if has_value and is_secret(match[1]) else match[0]


def secrets_in(url: str) -> list[str]:
    """The secrets of an address: its password, as written and as sent, and secret parameters.

    >>> secrets_in("http://me:p%40ss@host/v1")
    ['p%40ss', 'p@ss', 'bWU6cEBzcw==']
    """
    try:
        parts = urlsplit(url)
        user, password = parts.username or "", parts.password
    except ValueError:  # not an address: reported when it is opened
        return []
    found: list[str] = []
    if password:
        plain = unquote(password)
        found += [password, plain, base64.b64encode(f"{unquote(user)}:{plain}".encode()).decode()]
    for name, _, value in (pair.partition("=") for pair in parts.query.split("&")):
        if value and is_secret(name):
            found += [value, unquote(value)]
    return list(dict.fromkeys(found))


def _read_key_file(setting: str, given: str) -> str | None:
    # Without a slash it may be the key itself, and an error of user_path would show a key that begins with ~.
    path = user_path(given, setting) if "/" in given else Path(given)
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise SettingsError(f"{setting} = {str(path)!r} can be read by others; run: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        if not {"/", "."} & set(given):  # more often a key in place of a file name than a file name
            raise SettingsError(f"{setting} names no file (hidden: is it the key itself?)") from None
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(f"{setting} = {str(path)!r} cannot be read: {why}") from None
