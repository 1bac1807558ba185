"""Where a dataset lives on the Hugging Face hub, and how its files get here.

The hub keeps a Parquet copy of nearly every dataset in one layout, CONFIG/SPLIT/NNNN.parquet, on a branch of its
own. Reading that with pyarrow takes 7 MB of packages where `datasets` takes 90, and runs no dataset's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from odar.errors import InputError

COPY = "refs/convert/parquet"
"""The branch with the hub's own Parquet copy."""


@dataclass(frozen=True, slots=True)
class Hub:
    """Some splits of a dataset on the hub.

    >>> Hub("openai/gsm8k", ("main",)).patterns("main")
    ('main/test/*.parquet',)
    """

    id: str
    configs: tuple[str, ...] = ("default",)
    splits: tuple[str, ...] = ("test",)
    files: tuple[str, ...] = ()
    """Files of the dataset's own, where the hub has no copy of it: gated ones."""
    gated: bool = False

    def __str__(self) -> str:
        configs = self.configs[0] if len(self.configs) == 1 else f"{len(self.configs)} configs"
        return f"hub:{self.id} ({configs}, {'+'.join(self.splits)})"

    @property
    def revision(self) -> str | None:
        """The branch to read; None is the main one."""
        return None if self.files else COPY

    def patterns(self, config: str) -> tuple[str, ...]:
        """The files of a config, as patterns within the repository."""
        return self.files or tuple(f"{config}/{split}/*.parquet" for split in self.splits)

    def fetch(self) -> Path:
        """Download what is not in the cache yet; gives the folder it is in.

        Raises:
            InputError: gated, unknown, or out of reach; says what to do.
        """
        try:
            from huggingface_hub import errors, snapshot_download
        except ModuleNotFoundError:
            raise InputError(f"loading {self.id} from the hub needs: pip install 'odar[evals]'") from None
        by_hand = f"where it is reachable, run `{self.command('DIR/NAME')}`, and load from DIR"
        wanted = [pattern for config in self.configs for pattern in self.patterns(config)]
        try:
            found = snapshot_download(self.id, repo_type="dataset", revision=self.revision, allow_patterns=wanted)
        except errors.GatedRepoError:
            raise InputError(f"{self.id} is gated: {self.terms}") from None
        except errors.RevisionNotFoundError:
            raise InputError(f"the hub no longer has a Parquet copy of {self.id} on {self.revision}") from None
        except errors.LocalEntryNotFoundError:
            raise InputError(f"{self.id} is not in the cache and the hub is out of reach: {by_hand}") from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            hint = self.terms if self.gated else by_hand
            raise InputError(f"the hub refused {self.id} with status {status}: {hint}") from None
        except Exception as error:  # its HTTP library's errors come through as they are
            raise InputError(f"{self.id} cannot be downloaded ({type(error).__name__}): {by_hand}") from error
        return Path(found)

    @property
    def terms(self) -> str:
        """What a gated dataset asks for."""
        return f"accept its terms at huggingface.co/datasets/{self.id}, then set HF_TOKEN"

    def command(self, target: str) -> str:
        """The command that brings the files into a folder, on a machine that reaches the hub.

        >>> Hub("a/b").command("DIR/b")
        "hf download a/b --repo-type dataset --revision refs/convert/parquet --include '*/test/*' --local-dir DIR/b"
        """
        branch = f" --revision {self.revision}" if self.revision else ""
        config = self.configs[0] if len(self.configs) == 1 and self.configs != ("default",) else "*"
        wanted = self.files or tuple(f"{config}/{split}/*" for split in self.splits)
        includes = "".join(f" --include '{pattern}'" for pattern in wanted)
        return f"hf download {self.id} --repo-type dataset{branch}{includes} --local-dir {target}"

    def find(self, root: Path) -> Iterator[tuple[str, Path]]:
        """The files under a snapshot, each with its config, in a fixed order."""
        for config in self.configs:
            for pattern in self.patterns(config):
                for path in sorted(root.glob(pattern)):
                    yield config, path
