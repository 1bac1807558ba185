"""docs/paper.md: the paper's tables, figures, equations and claims beside ours.

    python -m docsite paper            # measures on the committed recordings (a minute), then writes the page
    python -m docsite cases            # asks the questions of the paper's case studies again (minutes)

Figures go to docs/data/paper.json, the page is `paper.md.j2` filled with them. No figure is typed into the page.
The counts in the README of the local pair's recording are written too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from docsite.markdown import ROOT

PAGE = ROOT / "docs/paper.md"
DATA = ROOT / "docs/data/paper.json"
TEMPLATE = Path(__file__).with_name("paper.md.j2")
LOCAL_PAIR = ROOT / "runs/local-pair"
RECORDINGS = {
    "local": (["runs/local-pair/recording.jsonl.gz"], "held-out"),
    "tiny": (sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/data").glob("embedded-*.gz")), ""),
    "small": (
        # the largest comes first: the others, of the same questions, are its ablations
        sorted(
            (str(path.relative_to(ROOT)) for path in (ROOT / "runs/small-pair").glob("*.gz")),
            key=lambda place: (not place.endswith("/recording.jsonl.gz"), place),
        ),
        "",
    ),
}
"""By the name they have in the template: files, and the split that is used."""
PATIENT = {"ODAR_FAST_TIMEOUT_S": "600", "ODAR_SLOW_TIMEOUT_S": "1200", "ODAR_LIMITS_DEADLINE_S": "1500"}
"""Time for models on a busy machine."""
ESTIMATOR = ROOT / "src/odar/difficulty/data"
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
    from odar.lab.replay.table import load_tables
    from odar.lab.report.findings import replay_recordings
    from odar.lab.report.page import to_json
    from odar.lab.report.results import correlations_with_errors

    found: dict[str, Any] = {}
    for name, (places, split) in RECORDINGS.items():
        (findings,) = replay_recordings(load_tables([ROOT / place for place in places], split=split))
        (part,) = json.loads(to_json([findings]))
        tables = {
            slug: {str(next(iter(row.values()))): dict(list(row.items())[1:]) for row in rows}
            for slug, rows in part["tables"].items()
        }
        found[name] = {"items": part["items"], "tables": tables, "paths": paper_paths(findings)}
        found[name]["more_for_harder"] = list(correlations_with_errors(findings, findings.outcomes["paper"]) or [])
    return _rounded({**found, **_estimator(), "other": other_recordings()})


OTHER = {
    "without-step-limit": ("fast: the limit of three steps", "−0.8, −0.5", "single-fast"),
    "without-self-correction": ("fast: “avoid self-correction”", "−0.6, −0.7", "single-fast"),
    "without-protocol": ("verification: the protocol", "−1.3, −1.2", "always-medium"),
    "without-self-check": ("samples: the self-check", "−2.1, −1.6", "always-hard"),
    "without-structure": ("slow: all structure", "−2.9, −2.5", "always-hard"),
    "fast-fast": ("the fast model as both agents", "−1.8", "always-hard"),
    "slow-slow": ("the slow model as both agents", "+47% cost", "always-hard"),
}
"""Recordings of the small pair's questions: what differs, the paper's figure, and the policy in which that answers every question."""


def other_recordings() -> dict[str, dict[str, Any]]:
    """Changes in the recordings of other agents and prompts, each on the questions that both have."""
    from odar.lab.replay.policies import run_policy
    from odar.lab.replay.table import load_table, shared_rows
    from odar.lab.statistics import difference

    folder = ROOT / "runs/small-pair"
    base = load_table(folder / "recording.jsonl.gz")
    found = {}
    for name, (what, said, policy) in OTHER.items():
        table = load_table(folder / f"{name}.jsonl.gz")
        rows, theirs = shared_rows(base.column("key"), table.column("key"))
        row: dict[str, Any] = {"what": what, "paper": said, "policy": policy.replace("-", " ")}
        for column, spec in (("changed", policy), ("paper's policy", "paper")):
            before, after = run_policy(base, spec), run_policy(table, spec)
            change = difference(after.score[theirs], before.score[rows]).interval
            row[column] = [change.value, change.low, change.high]
            if spec == policy:
                row["differing"] = int((before.score[rows] != after.score[theirs]).sum())
                row["tokens"] = float(after.tokens[theirs].sum() / before.tokens[rows].sum() - 1)
            else:
                row["dollars"] = float(after.cost_usd[theirs].sum() / before.cost_usd[rows].sum() - 1)
        found[name] = row
    return found


def paper_paths(findings: Any) -> dict[str, dict[str, float]]:
    """Where the paper's policy gains and loses: its accuracy on each path, beside the agents alone on the same items."""
    paper = findings.outcomes["paper"]
    alone = {name: findings.outcomes[name].score for name in ("single-fast", "single-slow")}
    found = {}
    for number, path in enumerate(("simple", "medium", "hard")):
        own = paper.path == number
        if own.any():
            found[path] = {
                "share": float(own.mean()),
                "paper": float(paper.score[own].mean()),
                **{name: float(score[own].mean()) for name, score in alone.items()},
            }
    return found


def training() -> dict[str, Any]:
    """What differs from the paper's training of the estimator, from the code and the shipped files."""
    from odar.lab.training import _PARSE_PENALTY

    shipped = json.loads((ESTIMATOR / "estimator.json").read_text("utf-8"))
    rows = shipped["about"]["rows"]
    script = (ROOT / "scripts/training/train_estimator.py").read_text("utf-8")
    weight = float(re.search(r"^ANCHOR_WEIGHT = ([\d.]+)", script, re.M)[1])
    anchors = rows["anchors"] * weight
    return {
        "values": shipped["training"],
        "rows": sum(rows.values()),
        "acc_fast": shipped["about"]["acc_fast"],
        "parse_penalty": _PARSE_PENALTY,
        "anchors": rows["anchors"],
        "anchor_weight": weight,
        "anchor_share": anchors / (anchors + sum(rows.values()) - rows["anchors"]),
        "report": json.loads((ESTIMATOR / "estimator.report.json").read_text("utf-8")),
        "domain": json.loads((ESTIMATOR / "domain.report.json").read_text("utf-8")),
    }


def _estimator() -> dict[str, Any]:
    from odar.difficulty.estimator import LearnedEstimator
    from odar.difficulty.features import FEATURES, GROUPS
    from odar.policy.paper import PATHS, PaperPolicy
    from odar.types import Query

    shipped, policy = LearnedEstimator.load(), PaperPolicy()
    with np.load(ROOT / "tests/difficulty/reference_mixture.npz") as file:
        d, sets = shipped.predict(file["features"].astype(float)), file["set"]
    paths = np.array([PATHS.index(policy.path_by_difficulty(float(each))[0]) for each in d])
    mix = {
        str(name): np.bincount(paths[sets == name], minlength=3) / (sets == name).sum() for name in np.unique(sets)
    }
    mix["all"] = np.bincount(paths, minlength=3) / len(d)
    weights = np.abs(shipped.weights)
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
        ours=_cell(figures), figures=figures, measured=measured, training=training(), **_importance(),
        statuses=statuses(), signed=lambda value, form="+.2f": f"{value:{form}}".replace("-", "−"), other=lambda name, column="paper's policy": _interval(figures["other"][name][column]), case=lambda name: case_sentence(measured, figures["difficulty"][name], name),
        large_models=large_models(), gains=sorted((over.split()[0] for _, over in large_models()), key=_number), vocabularies=vocabularies(),
        local=" ".join(RECORDINGS["local"][0]) + " --split held-out", tiny="docs/data/embedded-*.jsonl.gz",
    )  # fmt: skip


def _importance() -> dict[str, Any]:
    """The features by permutation importance, and the share of each group."""
    from odar.difficulty.features import FEATURES, GROUPS

    drops = training()["report"]["permutation_importance"]
    total = sum(max(0.0, drop) for drop in drops.values())
    shares = {
        group: sum(max(0.0, drops[name]) for name in FEATURES[places]) / total for group, places in GROUPS.items()
    }
    return {"importance": sorted(drops.items(), key=lambda each: -each[1]), "importance_of": shares}


def vocabularies() -> list[tuple[str, int]]:
    """The fields of f15 to f17, and how many words each has."""
    from odar.difficulty.features import FIELDS

    words = json.loads((ESTIMATOR / "vocabularies.json").read_text("utf-8"))["vocabularies"]
    return [(field, len(words[field])) for field in FIELDS]


def statuses() -> list[tuple[str, int]]:
    """How many rows of the page have each status."""
    names = re.findall(r"\| (same|differs|open|text) \|$", TEMPLATE.read_text("utf-8"), re.M)
    return Counter(names).most_common()


def write_cases() -> list[str]:
    """Ask the three questions of the paper's case studies with the local models, and keep what `odar ask` does."""
    place = ROOT / "docs/data/measured.json"
    measured = json.loads(place.read_text("utf-8"))
    answers = {}
    for name in ("paris", "algebra", "tokens"):
        command = [sys.executable, "-m", "odar", "ask", "--profile", "local", "--json", CASES[name]]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **PATIENT})
        answers[name] = case_of(json.loads(done.stdout))
    what = "what `odar ask` does with the paper's three case studies, on the local models"
    made = {"what": what, "command": "python -m docsite cases", "date": date.today().isoformat()}
    measured["cases"] = {**made, "answers": answers}
    place.write_text(json.dumps(measured, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [str(place.relative_to(ROOT))]


def case_of(trace: dict[str, Any]) -> dict[str, Any]:
    """Path, stages, calls and final answer of a trace."""
    stages = [each["stage"] for each in trace["decisions"] if each["stage"]]
    final = " ".join((trace["answer"]["final"] or trace["answer"]["text"]).split())
    short = final if len(final) <= 60 else f"{final[:59]}…"
    return {"path": trace["path"], "stages": stages, "calls": trace["spend"]["calls"], "answer": short}


def case_sentence(measured: dict[str, Any], difficulty: float, name: str) -> str:
    """The path of the paper's policy for a question of the paper, and what `odar ask` does with it."""
    from odar.policy.paper import PaperPolicy

    said = measured["cases"]["answers"][name]
    calls = "1 call" if said["calls"] == 1 else f"{said['calls']} calls"
    stages = ", ".join(f"`{stage}`" for stage in said["stages"])
    path = PaperPolicy().path_by_difficulty(difficulty)[0].value
    answer = said["answer"].replace("|", "\\|")
    return f"d = {difficulty:.2f}, so {path} by the paper's policy; `odar ask` with the local models: {stages}, {calls}, “{answer}”"


def large_models() -> list[tuple[str, str]]:
    """The paper's policy over the best mixture of fixed choices, for each set of large models in docs/results.md."""
    parts = re.split(r"^### ", (ROOT / "docs/results.md").read_text("utf-8"), flags=re.M)[1:]
    rows = [(part.splitlines()[0], re.search(r"^\| paper \|.*$", part, re.M)) for part in parts]
    return [(title, row[0].split(" | ")[4].replace("-", "−")) for title, row in rows if row]


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


def _number(text: str) -> float:
    return float(text.replace("−", "-"))


def _interval(found: list[float]) -> str:
    value, low, high = found
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]".replace("-", "−")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 4) + 0.0 if isinstance(value, float) else value


def local_pair_readme() -> str:
    """The README of the local pair's recording with the number of items in each half of every set."""
    from odar.lab.recording.files import open_recording

    items = open_recording(LOCAL_PAIR / "recording.jsonl.gz").items()
    count = Counter((item.key.set, item.split) for item in items)
    return re.sub(
        r"(?m)^(\| `(\w+)` \|) \d+, \d+ \|",
        lambda row: f"{row[1]} {count[row[2], 'calibrate']}, {count[row[2], 'held-out']} |",
        (LOCAL_PAIR / "README.md").read_text("utf-8"),
    )


def write() -> list[str]:
    """Measure, and write figures and pages."""
    DATA.write_text(json.dumps(measure(), indent=0, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(render(json.loads(DATA.read_text("utf-8"))), encoding="utf-8")
    (LOCAL_PAIR / "README.md").write_text(local_pair_readme(), encoding="utf-8")
    return [str(path.relative_to(ROOT)) for path in (DATA, PAGE, LOCAL_PAIR / "README.md")]
