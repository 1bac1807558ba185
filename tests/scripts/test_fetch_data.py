"""Fetching of training data: from a local HTTP server, by SHA-256, with nothing written that differs."""

from __future__ import annotations

import hashlib
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fetch_data  # scripts is on the path
import httpx
import pytest

RAW = "raw.githubusercontent.com"


@pytest.fixture
def hub(tmp_path):
    """A folder that is served as a mirror, and a function that fetches from it."""
    folder = tmp_path / "hub"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with httpx.Client() as client:
        yield folder, fetch_data.getter(client, f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    server.server_close()


@pytest.fixture
def expect(tmp_path, monkeypatch):
    """A function that sets what files must be."""

    def expected(**files):
        lines = (f"{hashlib.sha256(body).hexdigest()}  {file}\n" for file, body in files.items())
        (tmp_path / "sha256.txt").write_text("".join(lines))
        monkeypatch.setattr(fetch_data, "HASHES", tmp_path / "sha256.txt")

    return expected


def put(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def test_files_are_fetched_once(hub, expect, tmp_path, capsys):
    folder, get = hub
    body = b'{"question": "1 + 1?"}\n'
    address = fetch_data.AS_IT_IS["gsm8k"][0].removeprefix("https://")
    put(folder / address / "train.jsonl", body)
    expect(**{"gsm8k/train.jsonl": body})
    assert fetch_data.fetch(tmp_path / "out", ["gsm8k"], get) == []
    assert (tmp_path / "out/gsm8k/train.jsonl").read_bytes() == body
    (folder / address / "train.jsonl").unlink()
    assert fetch_data.fetch(tmp_path / "out", ["gsm8k"], get) == []
    assert capsys.readouterr().out == f"gsm8k/train.jsonl: {len(body)} bytes\ngsm8k/train.jsonl: there\n"


def test_another_version_is_not_written(hub, expect, tmp_path):
    folder, get = hub
    put(folder / fetch_data.AS_IT_IS["bbh"][0].removeprefix("https://") / "navigate.json", b"new")
    expect(**{"bbh/navigate.json": b"old", "bbh/gone.json": b""})
    first, second = fetch_data.fetch(tmp_path / "out", ["bbh"], get)
    assert "navigate.json" in first and "another version" in first and "404" in second
    assert not (tmp_path / "out").exists()


def test_sets_are_made_from_what_their_hubs_have(hub, expect, tmp_path):
    pd = pytest.importorskip("pandas", reason="of the dependency group train")
    folder, get = hub
    row = {"qid": "1", "question": "Is ö a letter?", "answer": True, "decomposition": ["a"], "facts": ["b"]}
    put(
        folder / RAW / "eladsegal/strategyqa/main/data/strategyqa/dev.json",
        json.dumps([row | {"term": "x"}]).encode(),
    )
    problem = {"problem": "1/2?", "level": "Level 1", "type": "Algebra", "solution": "é"}
    for subject in fetch_data.SUBJECTS:
        path = folder / fetch_data.MATH.removeprefix("https://") / subject / "test-00000-of-00001.parquet"
        path.parent.mkdir(parents=True)
        pd.DataFrame([problem]).to_parquet(path)
    weak, strong = fetch_data.WEAK, fetch_data.STRONG
    table = pd.DataFrame(
        [["p", True, False, "w", "s"], ["q", False, True, "w", "s"]],
        columns=["prompt", weak, strong, f"{weak}_response", f"{strong}_response"],
    )
    place = folder / fetch_data.ROUTELLM.removeprefix("https://")
    put(place / "gsm8k_responses.csv", table.to_csv(index=False).encode())
    put(place / "contaminated_prompts.jsonl", b'{"eval_prompt": "q"}\n')
    made = {
        "strategyqa/dev.jsonl": (json.dumps(row, ensure_ascii=False) + "\n").encode(),
        "math/test.jsonl": b"".join(
            b'{"problem":"1\\/2?","level":"Level 1","type":"Algebra","solution":"\\u00e9","idx":%d}\n' % number
            for number in range(7)
        ),
        "routellm_gsm8k/outcomes.jsonl": b"".join(
            b'{"prompt":"%s","weak_correct":%s,"strong_correct":%s,"weak_response":"w","strong_response":"s",'
            b'"contaminated":%s}\n' % values
            for values in ((b"p", b"true", b"false", b"false"), (b"q", b"false", b"true", b"true"))
        ),
    }
    expect(**made)
    assert fetch_data.fetch(tmp_path / "out", list(fetch_data.MADE), get) == []
    assert {file: (tmp_path / "out" / file).read_bytes() for file in made} == made


def test_recorded_outcomes_are_checked_but_not_fetched(hub, expect, tmp_path, capsys):
    expect(**{"crux_outputs/outputs.jsonl.gz": b"x"})
    (problem,) = fetch_data.fetch(tmp_path, ["crux_outputs"], hub[1])
    assert "by hand" in problem and "ZeroEval" in problem
    put(tmp_path / "crux_outputs/outputs.jsonl.gz", b"x")
    assert fetch_data.fetch(tmp_path, ["crux_outputs"], hub[1]) == []


def test_every_set_of_the_list_has_an_origin():
    folders = {file.split("/")[0] for file in fetch_data.hashes()}
    assert folders == {*fetch_data.AS_IT_IS, *fetch_data.MADE, *fetch_data.BY_HAND}
