"""docs/paper.md: the paper's tables, figures, equations and claims beside ours.

    python -m docsite paper            # measures on the committed recordings (a minute), then writes the page

Figures go to docs/data/paper.json, the page is `paper.md.j2` filled with them. No figure is typed into the page.
The counts in the README of the local pair's recording are written too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from docsite.markdown import ROOT

PAGE = ROOT / "docs/paper.md"
DATA = ROOT / "docs/data/paper.json"
TEMPLATE = Path(__file__).with_name("paper.md.j2")
LOCAL_PAIR = ROOT / "runs/local-pair"
RECORDINGS = {
    "local": (["runs/local-pair/recording.jsonl.gz"], "judge"),
    "tiny": (sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/data").glob("embedded-*.gz")), ""),
}
"""By the name they have in the template: files, and the split that is used."""
ENOUGH = 100
"""Items below which a recording shows how a table is made, and nothing else."""
CASES = {
    "paris": "Is Paris the capital of France?",
    "algebra": "Find all real numbers x such that sqrt(x+3)+sqrt(x-1)=4",
    "tokens": "$2n$ distinct tokens are placed at vertices of a regular $2n$-gon. A move interchanges tokens at edge "
    "endpoints. After finite moves, every pair has been interchanged exactly once. Prove some edge was never chosen.",
    "quantum": "Who is considered the father of Quantum Mechanics?",
    "hello": "Print 'Hello World' in C++.",
    "derive": "Derive the time-dependent Schrödinger equation.",
}


def measure() -> dict[str, Any]:
    """Every figure of the page that is computed here, rounded."""
    from odar.evals.replay.table import load_tables
    from odar.evals.report.findings import replay_recordings
    from odar.evals.report.page import to_json

    found: dict[str, Any] = {}
    for name, (places, split) in RECORDINGS.items():
        (part,) = json.loads(
            to_json(replay_recordings(load_tables([ROOT / place for place in places], split=split)))
        )
        tables = {
            slug: {str(next(iter(row.values()))): dict(list(row.items())[1:]) for row in rows}
            for slug, rows in part["tables"].items()
        }
        found[name] = {"items": part["items"], "tables": tables}
    return _rounded({**found, **_estimator()})


def _estimator() -> dict[str, Any]:
    from odar.difficulty.estimator import LearnedEstimator
    from odar.difficulty.features import FEATURES, GROUPS
    from odar.policy.paper import PATHS, Thresholds
    from odar.types import Query

    shipped, thresholds = LearnedEstimator.load(), Thresholds(0.3, 0.7)
    with np.load(ROOT / "tests/difficulty/reference_mixture.npz") as file:
        d, sets = shipped.predict(file["features"].astype(float)), file["set"]
    paths = np.array([PATHS.index(thresholds.path(float(each))) for each in d])
    mix = {
        str(name): np.bincount(paths[sets == name], minlength=3) / (sets == name).sum() for name in np.unique(sets)
    }
    mix["all"] = np.bincount(paths, minlength=3) / len(d)
    weights = np.abs(shipped.weights_)
    top = sorted(zip(FEATURES, weights.tolist(), strict=True), key=lambda pair: -pair[1])[:10]
    return {
        "mixture": {"items": len(d), "paths": {name: shares.tolist() for name, shares in mix.items()}},
        "weights": {
            "groups": {name: float(weights[group].sum() / weights.sum()) for name, group in GROUPS.items()},
            "top": [name for name, _ in top],
        },
        "difficulty": {name: shipped.estimate(Query(text)).difficulty for name, text in CASES.items()},
    }


def render(figures: dict[str, Any]) -> str:
    """The page with these figures."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    measured = json.loads((ROOT / "docs/data/measured.json").read_text("utf-8"))
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(
        ours=_cell(figures), figures=figures, measured=measured, enough=ENOUGH,
        local=" ".join(RECORDINGS["local"][0]) + " --split judge", tiny="docs/data/embedded-*.jsonl.gz",
    )  # fmt: skip


def _cell(figures: dict[str, Any]) -> Callable[..., str]:
    """For the template: part, table, row, column and format → the figure, with its interval if it has one."""

    def cell(part: str, table: str, row: str, column: str, form: str = ".3f") -> str:
        found = figures[part]["tables"].get(table, {}).get(row, {})
        value = found.get(column, "")
        if value == "" or value is None:
            return "not recorded"
        if isinstance(value, str):
            return value
        low, high = found.get(f"{column} low", ""), found.get(f"{column} high", "")
        text = f"{value:{form}}"
        if low != "" and high != "":
            text += f" [{low:{form}}, {high:{form}}]"
        return text.replace("-", "−")

    return cell


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 4) + 0.0 if isinstance(value, float) else value


def local_pair_readme() -> str:
    """The README of the local pair's recording with the number of items in each half of every set."""
    from odar.recording.files import open_recording

    items = open_recording(LOCAL_PAIR / "recording.jsonl.gz").items()
    count = Counter((item.key.set, item.split) for item in items)
    return re.sub(
        r"(?m)^(\| `(\w+)` \|) \d+, \d+ \|",
        lambda row: f"{row[1]} {count[row[2], 'calibrate']}, {count[row[2], 'judge']} |",
        (LOCAL_PAIR / "README.md").read_text("utf-8"),
    )


def write() -> list[str]:
    """Measure, and write figures and pages."""
    DATA.write_text(json.dumps(measure(), indent=0, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(render(json.loads(DATA.read_text("utf-8"))), encoding="utf-8")
    (LOCAL_PAIR / "README.md").write_text(local_pair_readme(), encoding="utf-8")
    return [str(path.relative_to(ROOT)) for path in (DATA, PAGE, LOCAL_PAIR / "README.md")]
