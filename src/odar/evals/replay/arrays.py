"""A recording as arrays: a row for each item, a column for each recorded answer. Tokens and texts stay on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from odar.calibration_file import load_calibration
from odar.errors import InputError
from odar.policy.equivalence import AnswerGroups
from odar.policy.fusion import FAST, SOLVE, tie_order
from odar.policy.rules import Array, Bools, Ints
from odar.policy.signals import AnswerSignals, SignalArrays, signals_of
from odar.recording.files import damage_reported, open_recording
from odar.recording.header import Header
from odar.recording.schema import ItemKey, rounded
from odar.types import Candidate, Step, Token

_REALS = ("energy", "varentropy", "mean_logprob", "mean_probability", "lowest_window")
_COUNTS = ("total", "missing", "length", "stated")
_PLAIN = ("score", "prompt_usd", "output_usd", "seconds")


@dataclass(frozen=True, slots=True)
class Items:
    """What is known of each item before anybody answers it."""

    keys: list[ItemKey]
    category: list[str]
    metric: list[str]
    stratum: list[str]
    fold: Ints
    query: list[str]
    features: Array
    """(N, 24): φ(x)."""
    prior: Array
    """(N,): d(x) at the time of collection."""
    expert: list[str]


@dataclass(frozen=True, slots=True)
class Answers:
    """What is known of each answer: columns are the fast one, the verification, then the slow samples."""

    energy: Array
    varentropy: Array
    mean_logprob: Array
    mean_probability: Array
    lowest_window: Array
    total: Array
    missing: Array
    length: Array
    stated: Array
    score: Array
    prompt_usd: Array
    output_usd: Array
    seconds: Array
    output: Array
    """Generated tokens; NaN where the provider did not say."""
    source: Ints
    """Which of the header's sources wrote it."""
    judgment: Array
    """1 CORRECT, 0 INCORRECT, NaN where there is no verdict."""
    order: Ints
    """Columns of each row in the order in which exact ties are broken."""
    cut_off: Bools
    """Whether it ended at the limit of tokens."""
    grouping: AnswerGroups
    fast: SignalArrays
    """Signals of the fast answers (SPEC 5.11)."""


@dataclass(frozen=True, slots=True)
class PanelArrays:
    """A recording, ready to be replayed."""

    header: Header
    items: Items
    answers: Answers

    def __len__(self) -> int:
        return len(self.items.keys)

    @property
    def samples(self) -> int:
        """Slow samples of each item."""
        return int(self.answers.score.shape[1]) - SOLVE

    def columns(self, *wanted: int) -> Bools:
        """(N, M): these columns in every row."""
        mask = np.zeros(self.answers.score.shape, dtype=bool)
        mask[:, list(wanted)] = True
        return mask


def load_arrays(place: str | Path, calibration: str | None = None, split: str = "") -> PanelArrays:
    """The recording in a file, some hundred items at a time.

    Args:
        place: the file.
        calibration: replay with this calibration, by name or file, in place of the one the recording was made with.
        split: only the items that may be used for this: `calibrate` or `judge`; empty for all.

    Raises:
        InputError: there is none, it is empty, or its items have different numbers of answers.
    """
    recording = open_recording(place)
    header = recording.header
    if calibration is not None:
        header = replace(header, calibration=json.loads(load_calibration(calibration).to_json()))
    with damage_reported(recording.path):
        parts = [_part(table, header, recording.path) for table in recording.tables(_COLUMNS, split)]
    if not parts:
        raise InputError(f"{place} holds no finished items yet; go on with odar eval collect")
    items = {name: _join([part[0][name] for part in parts]) for name in parts[0][0]}
    answers = {name: np.concatenate([part[1][name] for part in parts]) for name in parts[0][1]}
    grouping = AnswerGroups.join([part[2] for part in parts])
    fast = SignalArrays.join([part[3] for part in parts])
    return PanelArrays(header, Items(**items), Answers(**answers, grouping=grouping, fast=fast))


_ATTEMPT = "attempts.list.element."
_FAST_ONLY = ("stated", "tokens", "logprobs", "control", "mean_logprob")
_COLUMNS = [
    "key", "category", "metric", "stratum", "fold", "query", "features", "difficulty", "expert",
    *(_ATTEMPT + name for name in ("step", "model", "text", "answer", "finish", "judgment", "usage.output")),
    *(_ATTEMPT + name for name in _PLAIN),
    *(_ATTEMPT + name for name in _FAST_ONLY),
    *(_ATTEMPT + "figures." + name for name in (*_REALS, *_COUNTS)),
]  # fmt: skip


def _part(
    table: Any, header: Header, path: Path
) -> tuple[dict[str, Any], dict[str, Any], AnswerGroups, SignalArrays]:
    """One row group as items, answers, groups, and signals of the fast answers."""
    rows, width = table.num_rows, SOLVE + header.samples
    nested = table.column("attempts").combine_chunks()
    flat = nested.flatten()
    if header.imported:
        raise InputError(
            f"{path} was imported and has no verifications: it can be fused and compared, not replayed"
        )
    if len(flat) != rows * width:
        raise InputError(f"{path}: items with other than {width} answers; it is damaged, collect it again")

    def numbers(column: Any) -> Array:
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(rows, width)

    def texts(name: str) -> list[list[str]]:
        values = flat.field(name).to_pylist()
        return [values[i * width : (i + 1) * width] for i in range(rows)]

    said, steps, models = texts("answer"), texts("step"), texts("model")
    places = {(source["model"], source["step"]): i for i, source in enumerate(header.sources)}
    figures = flat.field("figures")
    answers = {
        **{name: numbers(figures.field(name)) for name in (*_REALS, *_COUNTS)},
        **{name: numbers(flat.field(name)) for name in _PLAIN},
        "output": numbers(flat.field("usage").field("output")),
        "cut_off": np.array(texts("finish")) == "length",
        "judgment": numbers(flat.field("judgment").cast("float64")),
        "source": np.array(
            [[places[m, s] for m, s in zip(*row, strict=True)] for row in zip(models, steps, strict=True)]
        ),
        "order": np.array([_order(*row) for row in zip(steps, texts("text"), strict=True)]),
    }
    items = {name: table.column(name).to_pylist() for name in ("category", "metric", "stratum", "query", "expert")}
    items["keys"] = [ItemKey(**row) for row in table.column("key").to_pylist()]
    items["fold"] = table.column("fold").to_numpy()
    items["prior"] = table.column("difficulty").to_numpy()
    items["features"] = np.array(table.column("features").to_pylist())
    fast = flat.take(np.arange(rows) * width + FAST).to_pylist()
    signals = [_signals(*row) for row in zip(fast, items["prior"].tolist(), strict=True)]
    return items, answers, AnswerGroups.of_answers(said), SignalArrays.of(signals)


def _signals(row: dict[str, Any], prior: float) -> AnswerSignals:
    """The signals of a recorded fast answer, as the engine would see them."""
    control, pairs = set(row["control"]), zip(row["tokens"], row["logprobs"], strict=True)
    tokens = tuple(Token(text, rounded(logprob), i in control) for i, (text, logprob) in enumerate(pairs))
    said = (row["text"], row["answer"], tokens, None, row["finish"])
    candidate = Candidate(Step(row["step"]), row["model"], *said, stated=row["stated"])
    found = signals_of(candidate, prior)
    return found if tokens else replace(found, mean_logprob=row["mean_logprob"])


def _order(steps: list[str], texts: list[str]) -> list[int]:
    """As `Fusion.choose` breaks exact ties."""
    return tie_order([Candidate(Step(step), "", text, "") for step, text in zip(steps, texts, strict=True)])


def _join(parts: list[Any]) -> Any:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [each for part in parts for each in part]
