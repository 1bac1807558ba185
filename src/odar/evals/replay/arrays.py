"""A recording as arrays: a row for each item, a column for each recorded answer, without tokens and texts."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from odar.calibration_file import Calibration, load_calibration
from odar.errors import InputError
from odar.policy.arrays import Array, Bools, Ints, Rows
from odar.policy.fusion import FAST, SOLVE, VERIFY, tie_order
from odar.policy.signals import AnswerSignals, SignalArrays
from odar.policy.similarity import AnswerRows
from odar.recording.files import open_recording, report_damage
from odar.recording.header import Header
from odar.recording.schema import Attempt, Figures, ItemKey, recorded_signals, round_logprob
from odar.types import Candidate, Step, Usage

_FIGURES = tuple(each.name for each in fields(Figures))
_PLAIN = ("score", "prompt_usd", "output_usd", "seconds")


class _NoItemsError(InputError):
    """A recording without items, or without items of the split."""


@dataclass(frozen=True, slots=True)
class Items(Rows):
    """The items of a recording, without their answers."""

    keys: list[ItemKey]
    category: list[str]
    metric: list[str]
    stratum: list[str]
    fold: Ints
    query: list[str]
    effort: Array
    """(N,): human time or length of the reference reasoning (SPEC 2.5); NaN if unknown."""
    features: Array
    """(N, 24): φ(x)."""
    prior: Array
    """(N,): d(x) at the time of collection."""
    expert: list[str]


@dataclass(frozen=True, slots=True)
class Answers(Rows):
    """The recorded answers; columns are the fast answer, the verification, then the slow samples."""

    energy: Array
    varentropy: Array
    mean_logprob: Array
    mean_probability: Array
    lowest_window: Array
    total: Array
    missing: Array
    stated: Array
    score: Array
    prompt_usd: Array
    output_usd: Array
    seconds: Array
    output: Array
    """Generated tokens; NaN if unknown."""
    source: Ints
    """Index into the sources of the header."""
    judgment: Array
    """1 CORRECT, 0 INCORRECT, NaN if there is no verdict."""
    order: Ints
    """Columns of each row in the order in which exact ties are broken."""
    cut_off: Bools
    """Whether the answer ended at the token limit."""
    comparison: AnswerRows
    """Groups of equal answers, and similarities."""
    fast_signals: SignalArrays
    """Signals of the fast answers (SPEC 5.11)."""


@dataclass(frozen=True, slots=True)
class PanelArrays(Rows):
    """A recording, ready to be replayed."""

    header: Header
    items: Items
    answers: Answers
    verified: bool = True
    """Whether verifications were recorded; imported answers and recordings for `odar eval fuse` have none."""

    def __len__(self) -> int:
        return len(self.items.keys)

    def sets(self) -> list[str]:
        """Return the benchmarks, in the order in which they were recorded."""
        return list(dict.fromkeys(key.set for key in self.items.keys))

    def of_set(self, name: str) -> Bools:
        """Return a mask of the items of a benchmark."""
        return np.array([key.set == name for key in self.items.keys], dtype=bool)

    @property
    def samples(self) -> int:
        """Slow samples of each item."""
        return int(self.answers.score.shape[1]) - SOLVE

    def columns(self, *wanted: int) -> Bools:
        """Return a mask of these columns in every row, of shape (N, M)."""
        shape = self.answers.score.shape
        return np.broadcast_to(np.isin(np.arange(shape[1]), wanted), shape).copy()


def load_arrays(place: str | Path, calibration: str | None = None, split: str = "") -> PanelArrays:
    """Load a recording, or its items of one split (`calibrate` or `judge`).

    `calibration` is the name or the file of a calibration that replaces the one of the recording.
    """
    recording = open_recording(place)
    header = recording.header
    if calibration is not None:
        header = with_calibration(header, load_calibration(calibration))
    with report_damage(recording.path):
        parts = [_read_row_group(table, header, recording.path) for table in recording.tables(_COLUMNS, split)]
    if not parts:
        kind = f"items to {split} with" if split else "finished items yet; collect them with odar eval collect"
        raise _NoItemsError(f"{place} holds no {kind}")
    return PanelArrays.concatenate(parts)


def load_panels(
    places: Sequence[str | Path], calibration: str | None = None, split: str = ""
) -> dict[str, PanelArrays]:
    """Load several recordings by file name, joining those of the same models, prompts and settings.

    An item that is in several files counts once. A file without items of the split is skipped if others have some.
    """
    groups: dict[str, tuple[list[str], list[PanelArrays]]] = {}
    for place in places:
        try:
            arrays = load_arrays(place, calibration, split)
        except _NoItemsError:
            if len(places) == 1:
                raise
            continue
        header = arrays.header
        made = (header.made_by, header.samples, header.settings, header.calibration, arrays.verified)
        files, parts = groups.setdefault(json.dumps(made, sort_keys=True), ([], []))
        known = {key for part in parts for key in part.items.keys}
        fresh = np.array([key not in known for key in arrays.items.keys])
        if fresh.any():
            files.append(str(place))
            parts.append(arrays.rows(fresh))
    if not groups:
        raise InputError(f"none of {', '.join(map(str, places))} holds items{f' to {split} with' * bool(split)}")
    return {" ".join(files): PanelArrays.concatenate(parts) for files, parts in groups.values()}


def shared_rows(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[Ints, Ints]:
    """Return the positions of the shared elements in each of two lists, in the order of the first.

    >>> [rows.tolist() for rows in shared_rows("abc", "ca")]
    [[0, 2], [1, 0]]
    """
    places = {each: i for i, each in enumerate(second)}
    pairs = [(i, places[each]) for i, each in enumerate(first) if each in places]
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def with_calibration(header: Header, calibration: Calibration) -> Header:
    """Return the header with another calibration, including its thresholds and fusion settings."""
    settings = {name: dict(part) if isinstance(part, Mapping) else part for name, part in header.settings.items()}
    for key, value in calibration.settings.items():
        part, _, name = key.partition(".")
        settings[part][name] = value
    return replace(header, calibration=json.loads(calibration.to_json()), settings=settings)


_ATTEMPT = "attempts.list.element."
_FAST_ONLY = ("stated", "tokens", "logprobs", "control", "mean_logprob", "answer_logprob")
_SAID = ("model", "text", "answer", "finish", "stated", "mean_logprob", "answer_logprob")
_COLUMNS = [
    "key", "category", "metric", "stratum", "fold", "query", "effort", "features", "difficulty", "expert",
    *(_ATTEMPT + name for name in ("step", "model", "text", "answer", "finish", "judgment", "usage.output")),
    *(_ATTEMPT + name for name in _PLAIN),
    *(_ATTEMPT + name for name in _FAST_ONLY),
    *(_ATTEMPT + "figures." + name for name in _FIGURES),
]  # fmt: skip


def _read_row_group(table: Any, header: Header, path: Path) -> PanelArrays:
    """Return the arrays of one row group."""
    nested = table.column("attempts").combine_chunks()
    flat, counts = nested.flatten(), nested.value_lengths().to_numpy()
    verified = Step.VERIFY.value in flat.field("step").unique().to_pylist()
    rows, width, gap = table.num_rows, SOLVE + header.samples, 0 if verified else 1
    if (counts < width - gap).any() or (not header.imported and (counts > width - gap).any()):
        raise InputError(f"{path}: items with other than {width - gap} answers; it is damaged, collect it again")
    # Without verifications, their column points to the fast answer and is marked as absent below.
    columns = np.r_[FAST, VERIFY - gap, np.arange(SOLVE, width) - gap]
    starts = np.cumsum(counts) - counts
    flat = flat.take((starts[:, None] + columns).ravel())

    def numbers(column: Any) -> Array:
        found = np.array(column.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(rows, width)
        if not verified:
            found[:, VERIFY] = np.nan
        return found

    def texts(name: str) -> list[list[str]]:
        values = flat.field(name).to_pylist()
        return [values[i * width : (i + 1) * width] for i in range(rows)]

    models, steps = flat.field("model").to_pylist(), flat.field("step").to_pylist()
    source_numbers = {(source["model"], source["step"]): i for i, source in enumerate(header.sources)}
    figures = flat.field("figures")
    answers = {
        **{name: numbers(figures.field(name)) for name in _FIGURES},
        **{name: numbers(flat.field(name)) for name in _PLAIN},
        "output": numbers(flat.field("usage").field("output")),
        "cut_off": np.array(texts("finish")) == "length",
        "judgment": numbers(flat.field("judgment").cast("float64")),
        "source": np.array([source_numbers[pair] for pair in zip(models, steps, strict=True)]).reshape(rows, width),
        "order": np.array([_order(*row) for row in zip(texts("step"), texts("text"), strict=True)]),
    }
    if not verified:
        answers["score"][:, VERIFY] = -np.inf  # never the best answer
    items = _items(table)
    fast = flat.take(np.arange(rows) * width + FAST).to_pylist()
    signals = SignalArrays.from_answers([_signals(*row) for row in zip(fast, items.prior.tolist(), strict=True)])
    similarity = header.settings["fusion"].get("similarity", "lexical")
    stated = (answers["stated"] > 0).tolist()
    comparison = AnswerRows.of_answers(texts("answer"), stated, items.query, similarity)
    return PanelArrays(header, items, Answers(**answers, comparison=comparison, fast_signals=signals), verified)


def _items(table: Any) -> Items:
    columns = {
        name: table.column(name).to_pylist() for name in ("category", "metric", "stratum", "query", "expert")
    }
    return Items(
        **columns,
        keys=[ItemKey(**row) for row in table.column("key").to_pylist()],
        fold=table.column("fold").to_numpy(),
        prior=table.column("difficulty").to_numpy(),
        effort=np.array(table.column("effort").to_pylist(), dtype=np.float64),
        features=np.array(table.column("features").to_pylist(), dtype=np.float64),
    )


def _signals(row: dict[str, Any], prior: float) -> AnswerSignals:
    """Return the signals of a recorded fast answer."""
    control = set(row["control"])
    attempt = Attempt(
        step=Step(row["step"]),
        tokens=tuple(row["tokens"]),
        logprobs=tuple(map(round_logprob, row["logprobs"])),
        control=tuple(i in control for i in range(len(row["tokens"]))),
        usage=Usage(output=row["usage"]["output"]),
        **{name: row[name] for name in _SAID},
    )
    return recorded_signals(attempt, prior)


def _order(steps: list[str], texts: list[str]) -> list[int]:
    """Return the order in which `Fusion.choose` breaks exact ties."""
    return tie_order([Candidate(Step(step), "", text, "") for step, text in zip(steps, texts, strict=True)])
