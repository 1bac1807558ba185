"""Import of answers that other tools recorded (SPEC 8.2); no call is made.

lm-evaluation-harness `samples_*.jsonl`, inspect_ai `.eval` logs, OpenAI Batch output, reports of the SWE-bench
harness, and tables (JSONL, CSV, Parquet) with a column map. The reader of a format returns the rows of a file and a
function from a row to the fields of an answer, of which `_make_answer` makes an `ImportedAnswer`. `joining` joins
the answers of several models.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from odar.errors import InputError, one_line
from odar.files import user_path
from odar.formats import load_json
from odar.lab.recording.files import existing_file, import_arrow, read_table, report_damage
from odar.lab.recording.schema import Attempt, Task, round_logprob
from odar.policy.answers import find_answer
from odar.types import Query, Step, Token, Usage

Row = Mapping[str, Any]
COLUMNS: dict[str, tuple[str, ...]] = {
    "id": ("id", "custom_id", "question_id", "doc_id", "row", "key", "idx"),
    "set": ("set", "dataset", "task", "benchmark"),
    "query": ("query", "question", "prompt", "problem", "instruction", "input"),
    "gold": ("gold", "target", "reference", "label", "expected", "answer_key"),
    "text": ("text", "response", "output", "completion", "generation"),
    "answer": ("answer", "prediction", "pred", "extracted"),
    "score": ("score", "correct", "is_correct", "acc", "exact_match", "accuracy", "f1"),
    "model": ("model", "model_name"),
    "mean_logprob": ("mean_logprob", "avg_logprob"),
    "answer_logprob": ("answer_logprob", "logprob"),
    "answer_probability": ("answer_probability", "answer_prob", "prob"),
    "mean_probability": ("mean_probability", "mean_token_probability", "confidence", "probability"),
    "tokens": ("tokens",),
    "logprobs": ("logprobs", "token_logprobs"),
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "response_tokens"),
    "cost": ("cost", "cost_usd", "price"),
    "seconds": ("seconds", "latency", "latency_s", "duration"),
    "finish": ("finish", "finish_reason", "stop_reason"),
}
"""The fields of a table, and the column names that are recognised without a map."""
_INSPECT_COLUMNS = {
    "id": ("id",),
    "query": ("input",),
    "gold": ("target",),
    "text": ("output.choices.0.message.content",),
    "answer": ("scored.answer",),
    "score": ("scored.value",),
    "logprobs": ("output.choices.0.logprobs",),
    "input_tokens": ("output.usage.input_tokens",),
    "cached_tokens": ("output.usage.input_tokens_cache_read",),
    "output_tokens": ("output.usage.output_tokens",),
    "seconds": ("output.time", "working_time"),
    "finish": ("output.choices.0.stop_reason",),
}
_OPENAI_BATCH_COLUMNS = {
    "id": ("custom_id",),
    "model": ("response.body.model",),
    "text": ("response.body.choices.0.message.content", "response.body.output"),
    "logprobs": ("response.body.choices.0.logprobs", "response.body.output.-1.content.0.logprobs"),
    "input_tokens": ("response.body.usage.prompt_tokens", "response.body.usage.input_tokens"),
    "cached_tokens": ("response.body.usage.prompt_tokens_details.cached_tokens",),
    "output_tokens": ("response.body.usage.completion_tokens", "response.body.usage.output_tokens"),
    "finish": ("response.body.choices.0.finish_reason",),
}
"""Of chat completions, and of the Responses API."""
_MIN_PROBABILITY = 1e-9
"""Stands for a probability of 0, whose logarithm has no finite value."""
MARKED_SHARE = 0.5
"""If at least this share of the texts of a set is marked, an unmarked one counts as unstated."""
_LM_EVAL_QUESTIONS = ("question", "query", "problem", "prompt", "input", "instruction", "goal", "text", "ctx")
FORMATS = ("auto", "lm-eval", "inspect", "openai-batch", "swe-bench", "table")
"""Formats of files; auto looks at the file."""
_FORMAT_OF_SUFFIX = {".eval": "inspect", ".csv": "table", ".parquet": "table", ".json": "swe-bench"}
_ZSTANDARD = 93
_SCORE_WORDS = {
    **dict.fromkeys(("c", "correct", "true", "yes"), 1.0),
    "p": 0.5,
    **dict.fromkeys(("i", "n", "incorrect", "false", "no"), 0.0),
}
"""Words that other tools write in place of a score."""
_ANSWER_FIELDS = ("text", "answer", "score")
"""A row of a table without any of these fields has no answer."""
_CUT_OFF = ("length", "max_tokens", "model_length")
"""Reasons why an answer ended that mean its limit of tokens."""
_TIE = "tie"
"""Start of a preference for neither of two answers, as in "tie (bothbad)"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedAnswer(Attempt):
    """One answer as a tool recorded it; unknown fields are None or empty. `output_usd` is the cost of all of it."""

    agent: str = ""
    step: Step = Step.ANSWER
    model: str = ""
    text: str = ""
    answer: str = ""
    id: str
    has_id: bool = True
    """Whether the file names the id; otherwise it is the number of the row."""
    set: str = ""
    query: str = ""
    gold: Any = None


Fields = dict[str, Any]
"""An answer by the names of COLUMNS, and `cached_tokens`; unknown fields are missing."""
Reader = tuple[Iterable[Any], Callable[[Any], Fields | None]]
"""The rows of a file, and a function that returns the fields of a row; None for a row without an answer."""


def read_answers(
    place: str | Path,
    kind: str = "auto",
    *,
    columns: Mapping[str, str] | None = None,
    model: str = "",
    filter_name: str = "",
    metric: str = "",
) -> list[ImportedAnswer]:
    """Read the answers of a file.

    A row whose cells for text, answer and score are all empty is a missing answer, and skipped.

    Args:
        place: the file.
        kind: one of FORMATS; auto looks at the file.
        columns: for tables, the column of each field; `{model}` is the model's name, dots lead into objects.
        model: only rows of this model, if the file has a column `model`; else the name of the model.
        filter_name: for lm-eval, the filter whose answers count (`flexible-extract`); empty for the last one.
        metric: for lm-eval and inspect, the metric or scorer that counts; empty for the first.

    Raises:
        InputError: the file cannot be read, is none of the formats, or lacks a field; names the row.
    """
    path = existing_file(place)
    answers: list[ImportedAnswer] = []
    with report_damage(place, "cannot be read", remedy=""):
        if kind == "auto":
            kind = "table" if columns else _detect_format(path)
    with report_damage(place, f"cannot be read as {kind}", remedy=""):
        rows, fields_of = _open(path, kind, columns or {}, model, filter_name, metric)
        for number, row in enumerate(rows, 1):
            with _row_errors(path, number):
                if (fields := fields_of(row)) is not None:
                    answers.append(_make_answer(fields, number, model))
    if not answers:
        of_model = f" of model {model!r}" if model else ""
        raise InputError(f"{place} holds no answers{of_model}; name their columns with --map text=COLUMN")
    return _mark_stated(answers)


def _open(path: Path, kind: str, columns: Mapping[str, str], model: str, filter_name: str, metric: str) -> Reader:
    match kind:
        case "lm-eval":
            return _lm_eval(path, filter_name, metric)
        case "inspect":
            return _inspect(path, metric)
        case "openai-batch":
            return _openai_batch(path)
        case "swe-bench":
            return _swe_bench(path)
    return _table(path, columns, model)


def read_models(
    files: Iterable[str], columns: Callable[[str], Mapping[str, str]], kind: str = "auto", **choices: str
) -> dict[str, list[ImportedAnswer]]:
    """Read the answers of any number of models, by the name of the model.

    Args:
        files: each is NAME=FILE, or FILE: then the model is that of each row, or else the name of the file.
        columns: returns the column map of a model; its name is empty if only the rows name it.
        kind: the format of all files.
        choices: `filter_name` and `metric` of `read_answers`.
    """
    found: dict[str, list[ImportedAnswer]] = {}
    for given in files:
        name, place = name_and_file(given)
        for answer in read_answers(place, kind, columns=columns(name), model=name, **choices):
            found.setdefault(name or answer.model or Path(place).name.split(".")[0], []).append(answer)
    return found


def name_and_file(given: str) -> tuple[str, str]:
    """The parts of NAME=FILE; the name is empty for FILE."""
    name, equals, place = given.partition("=")
    return (name, place) if equals and not user_path(given).is_file() else ("", given)


def _mark_stated(answers: Sequence[ImportedAnswer]) -> list[ImportedAnswer]:
    """An unmarked text counts as a stated answer unless most texts of its set are marked: the file does not hold
    the prompt, so marked texts show whether it asks for a mark. A single word ("B") is always an answer."""
    marked: dict[tuple[str, str], list[bool]] = {}
    for each in answers:
        marked.setdefault((each.set, each.model), []).append(each.stated)
    expected = {name: sum(flags) >= MARKED_SHARE * len(flags) for name, flags in marked.items()}
    known = any(each.answer for each in answers)  # a table may hold scores alone

    def is_answer(each: ImportedAnswer) -> bool:
        one_word = each.answer != "" and len(each.text.split()) == 1
        return one_word or not (expected[each.set, each.model] or (known and not each.answer))

    return [replace(each, stated=True) if is_answer(each) else each for each in answers]


def _make_answer(fields: Fields, number: int, model: str) -> ImportedAnswer:
    """The answer that the fields of a row describe; `number` is the id of a row without one."""
    get = fields.get
    # the text and the final answer
    text = _text(get("text", get("answer")))
    answer, stated = _find_answer(text)
    if get("answer") is not None:
        answer = str(get("answer"))
        stated = answer != ""
    # log-probabilities: without the tokens that they belong to, only their mean and their sum count
    mean_logprob = _logprob(get("mean_logprob"), get("mean_probability"))
    tokens, logprobs = _listed_tokens(get("tokens"), get("logprobs"))
    answer_logprob = _logprob(get("answer_logprob"), get("answer_probability"))
    if len(tokens) != len(logprobs):
        if known := [each for each in logprobs if each is not None]:
            mean_logprob = sum(known) / len(known)
            if answer_logprob is None and text.strip() == answer.strip():
                answer_logprob = sum(known)
        tokens = []
    counts = (_number(get(f"{kind}_tokens")) for kind in ("input", "cached", "output"))
    input_tokens, cached, output_tokens = (None if count is None else int(count) for count in counts)
    return ImportedAnswer(
        id=str(number if get("id") is None else get("id")),
        has_id=get("id") is not None,
        set=str(get("set") or ""),
        query=_text(get("query")),
        gold=get("gold"),
        text=text,
        answer=answer,
        stated=stated,
        score=_score(get("score")),
        model=str(model or get("model") or ""),
        tokens=tuple(map(Token, tokens, map(round_logprob, logprobs))),
        mean_logprob=round_logprob(mean_logprob),
        answer_logprob=round_logprob(answer_logprob),
        usage=Usage(input_tokens, cached, output_tokens),
        output_usd=_number(get("cost")),
        seconds=_number(get("seconds")),
        finish="length" if get("finish") in _CUT_OFF else str(get("finish") or "stop"),
    )


# --- lm-evaluation-harness -------------------------------------------------------------------------------------


def _lm_eval(path: Path, filter_name: str, metric: str) -> Reader:
    """A file has a row for each document and filter; the rows of one filter count."""
    rows = list(read_table(path))
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for row in rows))
    chosen = filter_name or (filters or ["none"])[-1]
    if chosen not in filters:
        raise InputError(f"{path} has no filter {chosen!r} (it has: {', '.join(filters)})")
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    task = re.sub(r"^samples_|_\d{4}-\d{2}-\d{2}T[\d.-]+$", "", name)
    kept = [row for row in rows if str(row.get("filter", "none")) == chosen]
    return kept, lambda row: _lm_eval_fields(row, task, metric)


def _lm_eval_fields(row: Row, task: str, metric: str) -> Fields:
    document = row["doc"]
    responses = row["filtered_resps"]
    choices = row["doc"].get("choices")
    # The harness writes the arguments of each request as lists, or as objects with gen_args_0, arg_0 and so on.
    arguments = [_values(each) for each in _values(row["arguments"])]
    metrics = [metric] if metric else list(row.get("metrics") or ())
    score = next((row[name] for name in metrics if isinstance(row.get(name), int | float | bool)), None)
    question = next((document[n] for n in _LM_EVAL_QUESTIONS if isinstance(document.get(n), str)), None)
    query = question or _prompt(arguments[0][0])
    gold = row.get("target")
    found = {"id": row["doc_id"], "set": task, "query": query, "gold": gold, "score": score}
    if isinstance(responses[0], str):
        # What the model wrote is in `resps`; the filter's version of it is the answer.
        raw = row["resps"][0][0] if isinstance(row["resps"][0], list) else responses[0]
        return found | {"text": raw, "answer": "" if responses[0] == "[invalid]" else responses[0]}
    # Log-likelihoods of the options: (sum of log-probabilities, whether it is the greedy continuation).
    likelihoods = [float(each[0]) for each in responses]
    best = max(range(len(likelihoods)), key=likelihoods.__getitem__)
    share = 1 / sum(math.exp(each - likelihoods[best]) for each in likelihoods)
    chosen = str(arguments[best][1]) if len(arguments) == len(likelihoods) else str(best)
    if isinstance(choices, list) and str(gold).isdigit() and int(str(gold)) < len(choices):
        found["gold"] = choices[int(str(gold))]
    return found | {"text": chosen, "answer": chosen.strip(), "mean_logprob": math.log(share)}


def _prompt(argument: Any) -> str:
    """The text of a request, which for a chat is a list with its messages as JSON."""
    text = str(argument[0] if isinstance(argument, list) and argument else argument)
    try:
        return _text(json.loads(text)) if text.startswith("[") else text
    except ValueError:
        return text


def _values(entries: Any) -> list[Any]:
    return list(entries.values() if isinstance(entries, Mapping) else entries)


# --- inspect_ai ------------------------------------------------------------------------------------------------


def _inspect(path: Path, metric: str) -> Reader:
    """A log is a zip archive with one file per sample."""
    with zipfile.ZipFile(path) as archive:
        files = {entry.filename: entry for entry in archive.infolist()}
    if "header.json" not in files:
        raise InputError(f"{path} has no header.json: the evaluation did not finish")
    log = load_json(_member(path, files["header.json"]))
    samples = (load_json(_member(path, files[name])) for name in sorted(files) if name.startswith("samples/"))
    about = {"set": log["eval"]["task"], "model": log["eval"]["model"], "text": ""}

    def fields_of(sample: Row) -> Fields | None:
        scores = sample.get("scores") or {}
        scored = scores.get(metric or next(iter(scores), ""))
        return None if sample.get("error") else about | _fields({**sample, "scored": scored}, _INSPECT_COLUMNS)

    return samples, fields_of


def _member(path: Path, entry: zipfile.ZipInfo) -> bytes:
    """One file of an archive; inspect_ai compresses with Zstandard, which `zipfile` does not support."""
    if entry.compress_type != _ZSTANDARD:
        with zipfile.ZipFile(path) as archive:
            return archive.read(entry)
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        *_, name_length, extra_length = struct.unpack("<4s5H3I2H", file.read(30))
        file.seek(name_length + extra_length, 1)
        compressed = file.read(entry.compress_size)
    pyarrow, _ = import_arrow()
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(compressed), "zstd") as stream:
        return bytes(stream.read())


# --- OpenAI Batch and SWE-bench --------------------------------------------------------------------------------


def _openai_batch(path: Path) -> Reader:
    """Questions are joined by `custom_id`."""

    def fields_of(row: Row) -> Fields | None:
        body = (row.get("response") or {}).get("body") or {}
        if row.get("error") or not (body.get("choices") or body.get("output")):
            return None
        return {"text": ""} | _fields(row, _OPENAI_BATCH_COLUMNS)

    return read_table(path), fields_of


def _swe_bench(path: Path) -> Reader:
    """A report names the instances that were solved; it does not hold the patches."""
    report = load_json(path.read_bytes())
    model = path.name.split(".")[0]
    resolved = set(report["resolved_ids"])
    return report["submitted_ids"], lambda name: {"id": name, "score": name in resolved, "model": model}


# --- tables ----------------------------------------------------------------------------------------------------


def _table(path: Path, columns: Mapping[str, str], model: str) -> Reader:
    """A row per answer, or per question with answers of several models."""
    given = {name: column.replace("{model}", model) for name, column in columns.items()}
    if unknown := sorted(given.keys() - COLUMNS.keys()):
        raise InputError(f"--map: unknown field {unknown[0]!r} (known: {', '.join(COLUMNS)})")
    # score=winner:model_a is a preference between two answers: 1 if the column says model_a, 0.5 for a tie, else 0
    column, _, side = given.get("score", "").partition(":")
    if side:
        given["score"] = column
    all_columns = {**COLUMNS, **{name: (column,) for name, column in given.items()}}
    missing = set(given.values())
    """Columns that no row has had so far: an object without the key of a model is a missing answer."""

    def rows() -> Iterator[Row]:
        row: Row = {}
        for row in _table_rows(path):
            missing.difference_update([column for column in missing if _value_at(row, column)[0]])
            yield row
        if row and missing:
            first = next(column for column in given.values() if column in missing)
            raise InputError(f"{path} has no column {first!r} (it has: {', '.join(map(str, row))})")

    def fields_of(row: Row) -> Fields | None:
        fields = _fields(row, all_columns)
        if model and "model" not in given and fields.get("model") not in (None, model):
            return None
        if side and "score" in fields:
            preferred = str(fields["score"]).strip().lower()
            fields["score"] = 0.5 if preferred.startswith(_TIE) else float(preferred == side.lower())
        return fields if any(fields.get(name) not in (None, "") for name in _ANSWER_FIELDS) else None

    return rows(), fields_of


def _listed_tokens(tokens: Any, logprobs: Any) -> tuple[list[str], list[float | None]]:
    """Tokens and log-probabilities from two lists, or from a list of objects as in chat completions.

    >>> _listed_tokens(None, {"content": [{"token": "B", "logprob": -0.5}]}), _listed_tokens(["B"], "[-0.5]")
    ((['B'], [-0.5]), (['B'], [-0.5]))
    """
    tokens, logprobs = (
        load_json(v) if isinstance(v, str) and v[:1] in ("[", "{") else v for v in (tokens, logprobs)
    )
    if isinstance(logprobs, Mapping):
        logprobs = logprobs.get("content")
    if isinstance(logprobs, list) and logprobs and all(isinstance(each, Mapping) for each in logprobs):
        tokens = [each.get("token", "") for each in logprobs]
        logprobs = [each.get("logprob") for each in logprobs]
    texts = [str(each) for each in tokens] if isinstance(tokens, list) else []
    return texts, [_logprob(each) for each in logprobs] if isinstance(logprobs, list) else []


def read_questions(place: str | Path, columns: Mapping[str, str] | None = None) -> dict[str, Task]:
    """Questions and their right answers by id from a table, for answer files that do not hold them.

    A list in the column `options` becomes lettered lines after the question: its form decides how it is asked.
    """
    path = existing_file(place)
    found: dict[str, Task] = {}
    for number, row in enumerate(_table_rows(path), 1):
        with _row_errors(path, number):
            given = {name: (column,) for name, column in (columns or {}).items() if _value_at(row, column)[0]}
            fields = _fields(row, {**COLUMNS, **given})
            gold = fields.get("gold", row.get("answer"))
            if gold is not None and isinstance(row.get("accept"), list):
                gold = [gold, *row["accept"]]
            text = _text(fields.get("query"))
            if text and isinstance(row.get("options"), list):
                lettered = zip(ascii_uppercase, row["options"], strict=False)
                text += "".join(f"\n{letter}. {each}" for letter, each in lettered)
            name = str(fields.get("id", number))
            found[name] = Task(name, Query(text), gold)
    return found


def _fields(row: Row, columns: Mapping[str, Sequence[str]]) -> Fields:
    """The fields of a row, each from the first of its columns that has a value."""
    found = {}
    for name, paths in columns.items():
        values = (_value_at(row, path)[1] for path in paths)
        if (value := next((value for value in values if value is not None), None)) is not None:
            found[name] = value
    return found


def _value_at(value: Any, path: str) -> tuple[bool, Any]:
    """Follow a path with dots; names may hold dots themselves, and numbers lead into lists, -1 to the last entry.

    >>> _value_at({"outputs": {"gpt-4.1": ["x"]}}, "outputs.gpt-4.1.0")
    (True, 'x')
    """
    if isinstance(value, list):
        value = {str(place): each for i, each in enumerate(value) for place in (i, i - len(value))}
    if not isinstance(value, Mapping):
        return False, None
    if path in value:
        return True, value[path]
    for dot in re.finditer(r"\.", path):
        if path[: dot.start()] in value:
            found = _value_at(value[path[: dot.start()]], path[dot.end() :])
            if found[0]:
                return found
    return False, None


def _table_rows(path: Path) -> Iterator[Row]:
    rows = read_table(path)
    if path.suffix != ".csv":
        return rows
    return ({name: None if value == "" else value for name, value in row.items()} for row in rows)


# --- formats, and values of cells ------------------------------------------------------------------------------


def _detect_format(path: Path) -> str:
    if path.suffix in _FORMAT_OF_SUFFIX:
        return _FORMAT_OF_SUFFIX[path.suffix]
    first = next(read_table(path), {})
    if "filtered_resps" in first and "doc" in first:
        return "lm-eval"
    if "custom_id" in first and "response" in first and isinstance(first["response"], dict | None):
        return "openai-batch"
    return "table"


@contextmanager
def _row_errors(path: Path, number: int) -> Iterator[None]:
    """Errors become an InputError that names file and row."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else one_line(error, 300)
        raise InputError(f"{path}: row {number} {why}") from None


def _find_answer(text: str) -> tuple[str, bool]:
    r"""The final answer of a text, and whether it was marked: a JSON field `answer`, or the usual phrases.

    >>> _find_answer('{"reasoning": "…", "answer": 4}'), _find_answer("So it is 5.\nAnswer: 5")
    (('4', True), ('5', True))
    """
    if '"answer"' in text:
        for match in reversed(list(re.finditer(r'"answer"\s*:\s*', text))):
            try:
                value, _ = json.JSONDecoder().raw_decode(text, match.end())
            except ValueError:
                continue
            return (value if isinstance(value, str) else json.dumps(value)), True
    found = find_answer(text)
    return (text.strip(), False) if found is None else (found, True)


def _text(value: Any) -> str:
    """A text, that of a list of parts, or that of the last of several messages.

    >>> _text([{"role": "user", "content": [{"type": "text", "text": "Why"}, {"type": "text", "text": "?"}]}])
    'Why?'
    """
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        if "content" in value[-1]:
            return _text(value[-1]["content"])
        return "".join(str(part.get("text", "")) for part in value)
    return "" if value is None else str(value)


def _score(value: Any) -> float | None:
    if isinstance(value, Mapping) and value:
        return _score(next(iter(value.values())))
    if isinstance(value, str):
        word = value.strip().lower()
        value = _SCORE_WORDS.get(word, word)
    elif not isinstance(value, float | int | None):
        raise ValueError(f"score is {value!r}")
    score = _number(value)
    if score is not None and not 0 <= score <= 1:
        raise ValueError(f"score is {score:g}, not between 0 and 1; name another by --metric or --map score=COLUMN")
    return score


def _number(value: Any) -> float | None:
    if value is None or value == "":
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _logprob(logprob: Any, probability: Any = None) -> float | None:
    """A log-probability, which a table may hold as a probability instead; −Infinity is a small one.

    >>> _logprob(-0.5), _logprob("-Infinity") == _logprob(None, 0.0)
    (-0.5, True)
    """
    if logprob not in (None, "") and float(logprob) == -math.inf:
        return math.log(_MIN_PROBABILITY)
    if (value := _number(logprob)) is not None:
        return value
    share = _number(probability)
    return None if share is None else math.log(min(1.0, max(share, _MIN_PROBABILITY)))
