"""Files: paths as users write them (`~ann` is Ann's home), the cache folder, atomic writes, installed extras."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from odar.errors import InputError, OdarError, SettingsError


def user_path(given: str | os.PathLike[str], setting: str = "") -> Path:
    """The path with `~` and `~user` expanded. Every path that a user names comes through here.

    Raises:
        InputError: there is no such user; SettingsError if the path is from a `setting`, which it names.

    >>> user_path("~nobody_such/x", setting="profile")
    Traceback (most recent call last):
    odar.errors.SettingsError: profile = '~nobody_such/x': no home is known for '~nobody_such'; write the whole path
    """
    path = Path(given)
    try:
        return path.expanduser()
    except (RuntimeError, ValueError):  # no such user, or an invalid name
        why = f"no home is known for {path.parts[0]!r}; write the whole path"
        if setting:
            raise SettingsError(f"{setting} = {str(given)!r}: {why}") from None
        raise InputError(f"{str(given)!r}: {why}") from None


@contextmanager
def read_errors(what: str, error_type: type[OdarError] = InputError) -> Iterator[None]:
    """Raise an error that names the file by `what`, if reading it fails or it is not UTF-8 text."""
    try:
        yield
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is {error.object[error.start]:#04x}"
        raise error_type(f"{what} is not UTF-8 text: {why}") from None
    except (OSError, ValueError) as error:  # a name with a NUL character is a ValueError
        raise error_type(f"{what} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def install_command(extra: str) -> str:
    """The command that adds an extra, from the checkout or file that ODAR itself was installed from."""
    from importlib import metadata  # takes longer to import than the other modules of this file together
    from urllib.parse import unquote, urlsplit

    source = option = ""
    with suppress(metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        origin = json.loads(metadata.distribution("odar").read_text("direct_url.json") or "{}")
        if origin["url"].startswith("file:"):
            source = unquote(urlsplit(origin["url"]).path)
            option = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {option}'{source or 'odar'}[{extra}]'"


def cache_folder() -> Path:
    """The folder for files that can be downloaded again: `ODAR_CACHE_DIR`, or the user's cache directory."""
    import platformdirs

    root = os.environ.get("ODAR_CACHE_DIR") or platformdirs.user_cache_dir("odar")
    return user_path(root, setting="ODAR_CACHE_DIR")


@contextmanager
def atomic_write(path: Path, error_type: type[OdarError] = InputError, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces the file at the end; a failure leaves the file unchanged.

    With `durable` the new file also survives a crash of the machine, which takes as long as the disk does.

    Raises:
        InputError: it cannot be written; another error if `error_type` says so.
    """
    draft = path.with_name(path.name + ".part")
    try:
        yield draft
        if durable:
            _sync(draft)
        draft.replace(path)
        if durable:
            with suppress(OSError):  # Windows cannot sync folders, and needs not
                _sync(path.parent)
    except OSError as error:
        raise error_type(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            draft.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
