"""Every benchmark, loaded from files in the layout of the hub: questions, scores and errors."""

from __future__ import annotations

import csv
import json
import pickle
import sys
from pathlib import Path

import huggingface_hub
import pyarrow
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from pyarrow import parquet

from lab.benchmarks.rows import SAMPLES
from odar.errors import InputError
from odar.lab.benchmarks.base import BENCHMARKS, NAMES
from odar.lab.recording.schema import Task
from odar.types import Query

PAPER = {
    "Mathematics": ["math", "gsm8k", "imo_2025", "mathvista"],
    "Commonsense": ["arc_challenge", "openbookqa", "boolq", "strategyqa"],
    "Knowledge QA": ["mmlu_pro", "gpqa"],
    "Multi-Hop": ["hotpotqa", "musique"],
    "Multimodal": ["scienceqa", "aokvqa", "mmmu_pro"],
    "Advanced Cognition": ["bbh", "bbeh", "truthfulqa", "hle", "livebench"],  # without its programs
    "Coding": ["swe_bench"],
    "Instruction": ["ifeval"],
    "Abstract": ["arc_agi_2"],
}


def write(root: Path, name: str, rows: list) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(rows)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Replace the download of the hub by files of the test; return the recorded requests."""
    asked = []

    def download(repo_id, *, repo_type, revision, allow_patterns):
        asked.append((repo_id, revision, tuple(allow_patterns)))
        assert repo_type == "dataset"
        root = tmp_path / "hub" / repo_id.replace("/", "--")
        root.mkdir(parents=True, exist_ok=True)
        return str(root)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_benchmarks_and_categories_are_those_of_the_paper():
    by_category: dict[str, list[str]] = {}
    for name in NAMES:
        benchmark = BENCHMARKS[name]
        assert benchmark.name == name
        by_category.setdefault(benchmark.category, []).append(name)
    assert by_category == {**PAPER, "Free text": ["truthfulqa_text"], "Starter": ["starter"]}
    assert sum(map(len, PAPER.values())) == len(SAMPLES) - 1 == 23


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("gsm8k", ("openai/gsm8k", "refs/convert/parquet", ("main/test/*.parquet",))),
        ("hle", ("cais/hle", None, ("data/test-*.parquet",))),
    ],
)
def test_the_hub_is_asked_for_some_files(name, asked, tmp_path, hub):
    for file, rows in SAMPLES[name].files.items():
        write(tmp_path / "hub" / asked[0].replace("/", "--"), file, rows)
    assert len(list(BENCHMARKS[name].load())) == SAMPLES[name].tasks
    assert hub == [asked]


def tasks_of(name: str, tmp_path: Path) -> list:
    for file, rows in SAMPLES[name].files.items():
        write(tmp_path / name, file, rows)
    return list(BENCHMARKS[name].load(tmp_path))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_benchmark_loads_from_a_folder(name, tmp_path):
    tasks, sample, benchmark = tasks_of(name, tmp_path), SAMPLES[name], BENCHMARKS[name]
    assert len(tasks) == sample.tasks
    assert len({task.id for task in tasks}) == len(tasks)
    assert sample.asked in tasks[0].query.text
    assert len(tasks[0].query.images) == sample.images
    json.dumps([task.gold for task in tasks])  # the contract: JSON
    if name in ("imo_2025", "swe_bench"):
        with pytest.raises(InputError, match="is graded by"):
            benchmark.score(tasks[0], "", "")
        return
    assert benchmark.score(tasks[0], sample.right, sample.right) == 1.0
    assert benchmark.score(tasks[0], sample.wrong, sample.wrong) == 0.0


def test_livebench_is_loaded_from_its_parts(tmp_path, hub):
    for category in ("math", "reasoning", "language", "data_analysis", "instruction_following"):
        write(tmp_path / "hub" / f"livebench--{category}", "default/test/0000.parquet", [row_of(category)])
    tasks = list(BENCHMARKS["livebench"].load())
    assert len(hub) == len(tasks) == 5
    followed = next(task for task in tasks if "instructions" in task.gold)
    assert BENCHMARKS["livebench"].score(followed, "no commas here", "") == 1.0


def row_of(category: str) -> dict:
    row = {"question_id": category, "category": category, "task": "t", "turns": ["?"], "ground_truth": "x"}
    if category == "instruction_following":
        row |= {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]}
    return row


def test_the_answer_is_not_in_the_question(tmp_path):
    assert "SECRET" not in tasks_of("scienceqa", tmp_path)[0].query.text
    question, again = (tasks_of("gpqa", tmp_path)[0] for _ in range(2))
    assert question.effort == 30.0
    assert question.query == again.query  # shuffled, the same every time


def test_scores_of_other_kinds_of_task(tmp_path):
    def score(name: str, number: int, answer: str) -> float:
        return BENCHMARKS[name].score(tasks_of(name, tmp_path)[number], answer, answer)

    assert score("mathvista", 1, "B") == score("mathvista", 1, "60") == 1.0  # by choice
    assert score("mathvista", 1, "45") == 0.0
    assert score("hle", 1, "0.5") == score("hle", 1, "\\frac12") == 1.0  # no options: equal as mathematics
    assert score("hle", 1, "2") == 0.0
    assert score("math", 1, "90") == 1.0
    assert score("arc_agi_2", 1, "8 7\n2 1") == 1.0
    assert score("arc_agi_2", 1, "6 5") == 0.0  # the other test input's output
    assert score("livebench", 0, "Here: their dog") == 1.0
    assert score("bbh", 1, "yes") == 1.0


def test_tasks_have_stratum_effort_and_id(tmp_path):
    first, second = tasks_of("math", tmp_path)
    assert (first.stratum, first.id, second.id) == ("Algebra, Level 1", "algebra-0", "geometry-0")
    assert tasks_of("gsm8k", tmp_path)[0].effort == 2.0  # steps
    assert tasks_of("musique", tmp_path)[0].stratum == "2 hops"
    assert [task.stratum for task in tasks_of("bbh", tmp_path)] == ["boolean_expressions", "navigate"]
    assert [len(task.query.images) for task in tasks_of("scienceqa", tmp_path)] == [1, 0]
    pictures = tasks_of("mmmu_pro", tmp_path)[0].query.images
    assert [picture.media_type for picture in pictures] == ["image/png", "image/jpeg"]


def test_removed_livebench_questions_are_skipped(tmp_path):
    rows = [
        row_of("math") | {"livebench_removal_date": ""},
        row_of("reasoning") | {"livebench_removal_date": "2024-11-25"},
    ]
    write(tmp_path, "livebench/math/default/test/0000.parquet", rows)
    assert [task.id for task in BENCHMARKS["livebench"].load(tmp_path)] == ["math"]


def test_an_unreadable_image_is_rejected(tmp_path):
    row = SAMPLES["aokvqa"].files["default/validation/0000.parquet"][0] | {
        "image": {"bytes": b"BM bitmap", "path": None}
    }
    write(tmp_path, "aokvqa/default/validation/0000.parquet", [row])
    with pytest.raises(InputError, match=r"aokvqa: row 0 of .* does not fit: a picture of this row is not a PNG"):
        list(BENCHMARKS["aokvqa"].load(tmp_path))


def test_imo_is_scored_by_a_verifier(tmp_path):
    benchmark = BENCHMARKS["imo_2025"].with_verifier(lambda prompt: "1: YES\n2: NO\nCONSISTENT: YES")
    (task,) = tasks_of("imo_2025", tmp_path)
    assert task.gold["checklist"] == ["Base: Treats small n", "Step: Reduces n"]
    assert benchmark.score(task, "a proof", "") == 0.5
    assert benchmark.score(task, "", "") == 0.0


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"livebench"}))
def test_missing_files_name_the_download_command(name, tmp_path):
    with pytest.raises(
        InputError, match=f"^{name} is not in .*`hf download .* --local-dir {tmp_path}/{name}"
    ) as caught:
        list(BENCHMARKS[name].load(tmp_path))
    assert ("HF_TOKEN" in str(caught.value)) == (name in ("gpqa", "hle"))


class Reply:
    """The response in an error of the hub client."""

    def __init__(self, status: int) -> None:
        self.status_code = status
        self.headers = {}
        self.request = None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            GatedRepoError("no", response=Reply(403)),
            "GatedRepoError.: accept its terms at huggingface.co/datasets/cais/hle.*HF_TOKEN",
        ),
        (
            RepositoryNotFoundError("no", response=Reply(401)),
            "RepositoryNotFoundError.: accept its terms.*HF_TOKEN",
        ),
        (LocalEntryNotFoundError("no"), "LocalEntryNotFoundError.: .*hf download cais/hle"),
        (ConnectionError("secret-token"), "cannot be downloaded .ConnectionError."),
    ],
)
def test_a_hub_error_names_the_remedy(monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(InputError, match=message) as caught:
        list(BENCHMARKS["hle"].load())
    assert "secret-token" not in str(caught.value)


def test_a_hub_without_the_files_is_an_error(hub):
    with pytest.raises(InputError, match=r"gsm8k: its files hold no tasks .hub:openai/gsm8k"):
        list(BENCHMARKS["gsm8k"].load())


def test_rows_of_another_version_are_rejected(tmp_path):
    write(tmp_path, "gsm8k/main/test/0000.parquet", [{"question": "?", "solution": "1"}])
    with pytest.raises(
        InputError, match=r"gsm8k: row 0 of .*0000.parquet has no field 'answer'; is it another version"
    ):
        list(BENCHMARKS["gsm8k"].load(tmp_path))
    write(tmp_path, "openbookqa/x.jsonl", [SAMPLES["openbookqa"].files["main/test/0000.parquet"][0]] * 2)
    with pytest.raises(InputError, match="two tasks have the id '8-376'"):
        list(BENCHMARKS["openbookqa"].load(tmp_path))
    write(
        tmp_path,
        "ifeval/input_data.jsonl",
        [{"key": 1, "prompt": "", "instruction_id_list": ["new:rule"], "kwargs": [{}]}],
    )
    with pytest.raises(InputError, match="unknown instructions"):
        list(BENCHMARKS["ifeval"].load(tmp_path))


def test_starter_needs_no_download():
    tasks = list(BENCHMARKS["starter"].load())
    assert len(tasks) == 236
    assert BENCHMARKS["starter"].score(tasks[0], "", "13.0") == 1.0
    assert BENCHMARKS["starter"].score(tasks[0], "", "12") == 0.0


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("gsm8k", {"answer": "There are 3."}, "the answer has no ####"),
        ("math", {"solution": "It is 3."}, "the solution has no"),
    ],
)
def test_a_row_without_its_answer_is_named(tmp_path, name, change, fault):
    (file, rows), *_ = SAMPLES[name].files.items()
    write(tmp_path / name, file, [{**rows[0], **change}])
    with pytest.raises(InputError, match=fault):
        list(BENCHMARKS[name].load(tmp_path))


def test_a_missing_hub_client_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"loading openai/gsm8k from the hub needs: pip install .*\[evals\]'"):
        list(BENCHMARKS["gsm8k"].load())


@pytest.mark.parametrize(
    ("gold", "answer", "kind", "precision", "score"),
    [
        ("Red", "red.", "text", None, 1.0),
        ("Red", "blue", "text", None, 0.0),
        ("1.2", "1.24", "float", 1, 1.0),
        ("1.2", "1.26", "float", 1, 0.0),
        ("7", "7", "integer", None, 1.0),
        ("7", "7.4", "integer", None, 0.0),
    ],
)
def test_mathvista_scores_words_exactly_and_numbers_to_their_precision(gold, answer, kind, precision, score):
    task = Task("t", Query("?"), {"answer": gold, "type": kind, "precision": precision})
    assert BENCHMARKS["mathvista"].score(task, answer, answer) == score


@pytest.mark.parametrize("name", [*NAMES, "starter+masking"])
def test_every_benchmark_can_be_pickled_for_ray(name):
    benchmark = BENCHMARKS[name]
    assert pickle.loads(pickle.dumps(benchmark)).name == name
