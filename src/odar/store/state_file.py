"""A small JSON file beside the traces that several processes of a machine add to. It holds counts and no text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from odar.errors import StoreError
from odar.formats import check_format, load_json

K = TypeVar("K")
V = TypeVar("V")
_LOCK_TIMEOUT_S = 2.0


class StateFile(Generic[K, V]):
    """A dictionary in a file, which is locked while it changes and replaced as a whole.

    Args:
        path: where it is; it need not exist.
        format_: name and version of its format, such as "odar-targets-1".
        read: makes the dictionary of the JSON object.
        write: the reverse.
    """

    def __init__(
        self,
        path: Path,
        format_: str,
        read: Callable[[Mapping[str, Any]], dict[K, V]],
        write: Callable[[dict[K, V]], dict[str, Any]],
    ) -> None:
        self.path = path
        self._format = format_
        self._read = read
        self._write = write

    def load(self) -> dict[K, V]:
        """What is in the file.

        Raises:
            StoreError: the file cannot be read, or is not such a file.
        """
        try:
            body = load_json(self.path.read_text(encoding="utf-8"))
            check_format(body["format"], self._format, str(self.path), "delete it to start again", StoreError)
            return self._read(body)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise StoreError(f"{self.path} is damaged; delete it to start again") from None

    def update(self, change: Callable[[dict[K, V]], dict[K, V]]) -> dict[K, V]:
        """Write what `change` makes of the file, and return it.

        Raises:
            StoreError: the file cannot be read, locked or written.
        """
        import filelock  # 20 ms: only when there is something to write

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with filelock.FileLock(self.path.with_name(self.path.name + ".lock"), timeout=_LOCK_TIMEOUT_S):
                total = change(self.load())
                body = {"format": self._format, **self._write(total)}
                draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
                try:
                    draft.touch(mode=0o600)
                    draft.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
                    draft.replace(self.path)
                finally:
                    draft.unlink(missing_ok=True)
        except filelock.Timeout:
            raise StoreError(f"{self.path} is locked by another process") from None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from None
        return total
