"""Where files are, as users write it: `~` is their home, `~ann` is Ann's."""

from __future__ import annotations

import os
from pathlib import Path

from odar.errors import InputError, SettingsError


def user_path(given: str | os.PathLike[str], setting: str = "") -> Path:
    """The path with `~` and `~somebody` written out. Every path that a user names comes through here.

    Args:
        given: what the user wrote.
        setting: the key of the settings that it came from, for the message; empty for an argument.

    Raises:
        InputError: nobody of that name has a home here; SettingsError where a setting named it.

    >>> user_path("data/questions.jsonl").name
    'questions.jsonl'
    >>> user_path("~nobody_such/x", setting="profile")
    Traceback (most recent call last):
    odar.errors.SettingsError: profile = '~nobody_such/x': no home is known for '~nobody_such'; write the whole path
    """
    path = Path(given)
    try:
        return path.expanduser()
    except (RuntimeError, ValueError):  # no such user, says pathlib; or, to the system, not even a name
        why = f"no home is known for {path.parts[0]!r}; write the whole path"
        if setting:
            raise SettingsError(f"{setting} = {str(given)!r}: {why}") from None
        raise InputError(f"{str(given)!r}: {why}") from None
