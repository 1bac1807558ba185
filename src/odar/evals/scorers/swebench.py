"""SWE-bench: predictions for its harness, and the harness's report.

Its tests run in a Docker image per issue, by the official harness and never by ODAR: write predictions, run
`python -m swebench.harness.run_evaluation --predictions_path FILE`, then score with the report it leaves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from odar.errors import InputError

_FENCED = re.compile(r"```(?:diff|patch)[ \t]*\n(.*?)```", re.DOTALL)
_BARE = re.compile(r"^(?:diff --git |--- a/|--- /dev/null).*", re.DOTALL | re.MULTILINE)


class Prediction(NamedTuple):
    """A model's patch for an issue."""

    instance_id: str
    model_patch: str


def extract_patch(response: str) -> str:
    """The patch in a response: the last tagged or fenced one, else from the first diff header on; empty where none.

    >>> extract_patch("Here:\\n```diff\\n--- a/x\\n+++ b/x\\n```")
    '--- a/x\\n+++ b/x\\n'
    """
    end = response.rfind("</patch>")
    start = response.rfind("<patch>", 0, max(end, 0))
    fenced = _FENCED.findall(response)
    if start != -1:
        return response[start + len("<patch>") : end].strip("\n") + "\n"
    if fenced:
        return str(fenced[-1]).strip("\n") + "\n"
    bare = _BARE.search(response)
    return f"{bare[0].rstrip().removesuffix('```').rstrip()}\n" if bare else ""


def write_predictions(path: Path, model: str, predictions: Iterable[Prediction]) -> int:
    """A predictions file as the harness reads it, one JSON object a line; gives the number of lines."""
    lines = [
        json.dumps({"instance_id": p.instance_id, "model_name_or_path": model, "model_patch": p.model_patch})
        for p in predictions
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


class Report(NamedTuple):
    """What the harness found: which issues were run to an end, and which of them are resolved."""

    submitted: frozenset[str]
    resolved: frozenset[str]

    def passed(self, instance_id: str) -> float:
        """pass@1 of an issue. An empty patch, or one whose run failed, is not resolved.

        Raises:
            InputError: the harness was not given this issue.
        """
        if instance_id not in self.submitted:
            raise InputError(f"the SWE-bench report says nothing about {instance_id!r}: run the harness on it too")
        return float(instance_id in self.resolved)


def read_report(path: Path) -> Report:
    """The report that the harness leaves as MODEL.RUN_ID.json.

    Raises:
        InputError: it is missing or not such a report.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        return Report(frozenset(body["submitted_ids"]), frozenset(body["resolved_ids"]))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no report of the SWE-bench harness: {type(error).__name__} {error}") from None
