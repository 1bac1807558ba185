"""Files that lm-evaluation-harness 0.4.13, inspect_ai and an OpenAI-compatible server wrote, and tables of all kinds.

`files/` was made with SmolLM2-135M behind `odar serve`: the harness and inspect_ai asked it the questions of
`files/questions.jsonl`, once as `smollm2-135m` and once as `odar-medium`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zipfile
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from odar.errors import InputError
from odar.lab.recording.importers import read_answers, read_models, read_questions
from odar.types import Token

FILES = Path(__file__).parent / "files"
LM_EVAL = sorted(FILES.glob("samples_starter_gen_*.jsonl"))
QUESTIONS = [json.loads(line) for line in (FILES / "questions.jsonl").read_text().splitlines()]


def write(path: Path, rows) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_lm_eval_samples_are_read_by_filter():
    strict = read_answers(LM_EVAL[0], filter_name="strict-match")
    flexible = read_answers(LM_EVAL[0])
    assert [each.query for each in strict] == [row["question"] for row in QUESTIONS]
    assert [each.gold for each in strict] == [row["answer"] for row in QUESTIONS]
    assert {each.set for each in strict} == {"starter_gen"}
    assert {each.score for each in strict} <= {0.0, 1.0}
    assert [each.text for each in strict] == [each.text for each in flexible]
    assert any(a.answer != b.answer for a, b in zip(strict, flexible, strict=True))
    assert all(each.stated or not each.answer for each in flexible)
    with pytest.raises(InputError, match="has no filter 'none'"):
        read_answers(LM_EVAL[0], filter_name="none")


def test_an_lm_eval_choice_is_the_most_likely_option():
    (path,) = FILES.glob("samples_starter_mc_*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row, answer in zip(rows, read_answers(path), strict=True):
        likelihoods = [float(each[0]) for each in row["filtered_resps"]]
        best = likelihoods.index(max(likelihoods))
        assert answer.answer == row["doc"]["choices"][best]
        assert answer.gold == row["doc"]["choices"][row["doc"]["label"]]
        assert answer.score == row["acc"] == float(answer.answer == answer.gold)
        share = math.exp(likelihoods[best]) / sum(map(math.exp, likelihoods))
        assert answer.mean_logprob == pytest.approx(math.log(share), abs=1e-4)


def test_an_inspect_log_is_read_with_tokens_and_usage():
    answers = read_answers(FILES / "inspect_fast.eval")
    assert {each.query for each in answers} == {row["question"] for row in QUESTIONS}
    assert {each.id: each.gold for each in answers} == {row["id"]: row["answer"] for row in QUESTIONS}
    assert {each.model for each in answers} == {"openai-api/local/smollm2-135m"}
    assert {each.score for each in answers} <= {0.0, 1.0}
    for each in answers:
        assert all(token.logprob is not None for token in each.tokens)
        assert "".join(token.text for token in each.tokens).strip() == each.text.strip() != ""
        assert each.usage.input and each.usage.output
        assert each.seconds > 0


def test_batch_output_is_read_without_failed_requests():
    answers = read_answers(FILES / "openai_batch.jsonl")
    assert [each.id for each in answers] == [row["id"] for row in QUESTIONS[:6]]
    first = answers[0]
    assert first.text == "".join(token.text for token in first.tokens)
    assert (first.model, first.score, first.query) == ("smollm2-135m", None, "")
    assert first.tokens[0].logprob == -5.9004
    assert first.usage.output is not None


def test_batch_output_of_the_responses_api_is_read(tmp_path):
    content = [{"type": "output_text", "text": "Answer: 4", "logprobs": [{"token": "Answer: 4", "logprob": -0.5}]}]
    body = {"model": "m", "output": [{"type": "reasoning"}, {"type": "message", "content": content}]}
    body["usage"] = {"input_tokens": 3, "output_tokens": 2}
    rows = [{"custom_id": "a", "response": {"status_code": 200, "body": body}, "error": None}]
    (answer,) = read_answers(write(tmp_path / "b.jsonl", rows))
    assert (answer.answer, answer.tokens, answer.usage.input, answer.usage.output) == (
        "4", (Token("Answer: 4", -0.5),), 3, 2
    )  # fmt: skip


ROWS = [
    {
        "id": 1,
        "question": "2 + 2?",
        "target": 4,
        "response": "It is 4.\nAnswer: 4",
        "output_tokens": 9,
        "latency": 0.5,
    },
    {"id": 2, "question": "3 + 3?", "target": 6, "response": "I do not know", "output_tokens": 4, "latency": 0.25},
]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_common_column_names_are_recognised(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    if suffix == "jsonl":
        write(path, ROWS)
    elif suffix == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    else:
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, ROWS[0])
            table.writeheader()
            table.writerows(ROWS)
    first, second = read_answers(path)
    assert (first.id, first.query, str(first.gold), first.answer, first.stated) == ("1", "2 + 2?", "4", "4", True)
    assert (second.answer, second.stated) == ("I do not know", False)
    assert (first.usage.output, first.seconds, first.usage.input, first.score) == (9, 0.5, None, None)


def test_a_column_map_can_reach_into_objects(tmp_path):
    rows = [{"q": "?", "outputs": {"gpt-4.1": [{"said": '```json\n{"answer": 7}\n```', "ok": "true"}]}, "p": 0.5}]
    columns = {
        "query": "q",
        "text": "outputs.{model}.0.said",
        "score": "outputs.{model}.0.ok",
        "mean_probability": "p",
    }
    (answer,) = read_answers(write(tmp_path / "t.jsonl", rows), columns=columns, model="gpt-4.1")
    assert (answer.answer, answer.stated, answer.score, answer.model) == ("7", True, 1.0, "gpt-4.1")
    assert answer.mean_logprob == pytest.approx(math.log(0.5), abs=1e-4)
    with pytest.raises(InputError, match=r"t.jsonl has no column 'outputs.other.0.said' \(it has: q, outputs, p\)"):
        read_answers(tmp_path / "t.jsonl", columns=columns, model="other")


def test_rows_of_one_model_are_selected(tmp_path):
    rows = [{"row": i, "model": model, "correct": model == "b"} for i in range(3) for model in "ab"]
    path = write(tmp_path / "t.jsonl", rows)
    found = read_answers(path, model="b")
    assert [(each.id, each.score, each.model) for each in found] == [(str(i), 1.0, "b") for i in range(3)]
    with pytest.raises(InputError, match="holds no answers of model 'c'"):
        read_answers(path, model="c")


def test_log_probabilities_without_tokens_become_their_mean(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"text": "4", "token_logprobs": [-0.5, None, -1.5]}])
    (answer,) = read_answers(path)
    assert (answer.mean_logprob, answer.tokens) == (-1.0, ())


def test_tokens_without_log_probabilities_are_left_out(tmp_path):
    (answer,) = read_answers(write(tmp_path / "t.jsonl", [{"text": "a b", "tokens": ["a", " b"]}]))
    assert (answer.text, answer.tokens, answer.mean_logprob) == ("a b", (), None)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 is not an object"),
        ('{"a": 1}', "holds no answers; name their columns with --map text=COLUMN"),
        ('{"text": "x", "score": "good"}', "row 1 could not convert string to float"),
        ('{"text": "x", "score": [1]}', r"row 1 score is \[1\]"),
        ('{"text": "x", "score": 85.0}', "row 1 score is 85, not between 0 and 1"),
        ("", "holds no answers"),
        ('{"doc": {}, "filtered_resps": [], "filter": "none"}', "row 1 lacks 'arguments'"),
    ],
)
def test_invalid_rows_are_named(tmp_path, content, why):
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=why):
        read_answers(path)


def test_a_score_that_is_no_number_is_unknown(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"text": "x", "score": score} for score in ("nan", "", "Correct", 0.5)])
    assert [each.score for each in read_answers(path)] == [None, None, 1.0, 0.5]


def archive(header: str, sample: str = "{}") -> bytes:
    """A log of inspect_ai with this header and one sample."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as log:
        log.writestr("header.json", header)
        log.writestr("samples/1.json", sample)
    return file.getvalue()


def encrypted(content: bytes) -> bytes:
    """The archive with all its files marked as encrypted."""
    changed = bytearray(content)
    for start, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        for match in re.finditer(re.escape(start), content):
            changed[match.start() + flags] |= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.eval", encrypted(archive("{}")), "cannot be read as inspect"),
        ("x.eval", b"no zip", "cannot be read as inspect"),
        ("x.eval", archive("{}"), "cannot be read as inspect"),
        ("x.eval", archive('{"eval": {"task": "t", "model": "m"}}', "no JSON"), "cannot be read as inspect"),
        ("x.json", b"no JSON", "cannot be read as swe-bench"),
        ("x.json", b'{"resolved_ids": 5, "submitted_ids": []}', "cannot be read as swe-bench"),
        ("x.jsonl.gz", b"no gzip", "is damaged or not gz"),
        ("x.jsonl.gz", gzip.compress(b'{"text": "x"}')[:-9], "is damaged or not gz"),
        ("x.parquet", b"no Parquet", "is damaged or not parquet"),
        ("x.csv", b"text\n\xff", "is damaged or not csv"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_a_damaged_file_is_named(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} {why}"):
        read_answers(tmp_path / name)


def test_a_long_answer_in_a_csv_file(tmp_path):
    (tmp_path / "t.csv").write_text(f"text\n{'x ' * 100_000}4\n")
    (answer,) = read_answers(tmp_path / "t.csv")
    assert len(answer.text) == 200_001


def test_missing_files_and_unknown_fields_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_answers(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="unknown field 'txt'"):
        read_answers(write(tmp_path / "t.jsonl", ROWS), columns={"txt": "response"})


def test_questions_are_read_by_id():
    known = read_questions(FILES / "questions.jsonl")
    assert (known["math-001"].query.text, known["math-001"].gold) == ("What is 6 + 7?", "13")


def test_a_preference_is_read_as_a_score(tmp_path):
    rows = [
        {"id": i, "question": "Why?", "response_a": "one", "response_b": "two", "winner": winner}
        for i, winner in enumerate(["model_a", "model_b", "tie", "Tie (bothbad)"])
    ]
    path = write(tmp_path / "votes.jsonl", rows)
    sides = [
        read_answers(path, columns={"text": f"response_{side}", "score": f"winner:model_{side}"}) for side in "ab"
    ]
    assert [each.score for each in sides[0]] == [1.0, 0.0, 0.5, 0.5]
    assert [each.score for each in sides[1]] == [0.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_an_empty_cell_is_a_missing_answer(tmp_path, suffix):
    rows = [{"id": i, "question": "?", "response": "" if i == 1 else "4"} for i in range(3)]
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        path.write_text("id,question,response\n" + "".join(f"{r['id']},?,{r['response']}\n" for r in rows))
    else:
        write(path, [*rows, {"id": 3, "question": "?", "response": None}])
    assert [each.id for each in read_answers(path)] == ["0", "2"]


def test_an_object_without_the_key_of_a_model_is_a_missing_answer(tmp_path):
    rows = [{"id": i, "outputs": {"a": "4"} if i == 0 else {"a": "4", "b": "5"}} for i in range(3)]
    path = write(tmp_path / "t.jsonl", rows)
    found = read_answers(path, columns={"text": "outputs.{model}"}, model="b")
    assert [each.id for each in found] == ["1", "2"]


def test_minus_infinity_is_a_log_probability(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        '{"text": "a b", "tokens": ["a", " b"], "logprobs": [-Infinity, -0.5]}\n'
        '{"text": "a", "answer_logprob": -Infinity}\n'
    )
    first, second = read_answers(tmp_path / "t.jsonl")
    assert [token.logprob for token in first.tokens] == [pytest.approx(math.log(1e-9), abs=1e-3), -0.5]
    assert second.answer_logprob == pytest.approx(math.log(1e-9), abs=1e-3)


def test_any_number_of_models_is_read_from_files_and_from_one_table(tmp_path):
    long = write(tmp_path / "long.jsonl", [{"id": i, "model": m, "text": m} for i in range(2) for m in "abc"])
    own = write(tmp_path / "own.jsonl", [{"id": 0, "text": "x"}])
    found = read_models([str(long), f"d={own}", str(own)], lambda name: {})
    assert {name: len(own) for name, own in found.items()} == {
        "a": 2, "b": 2, "c": 2, "d": 1, "own": 1
    }  # fmt: skip
