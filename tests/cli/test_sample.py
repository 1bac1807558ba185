from __future__ import annotations

import json

from odar.evals.fusion_file import load_questions
from support.scripted import completion


def test_samples_are_recorded_in_full_and_can_be_fused(odar, provider, tmp_path):
    def speak(request, index):
        return [completion(f"Answer: {4 + i // 3}", -0.1 * (i + 1)) for i in range(request.n)]

    provider.script = speak
    toml = tmp_path / "odar.toml"
    toml.write_text(
        toml.read_text().replace("price = { input = 1, output = 2 }", "price = { input = 0, output = 0 }")
    )
    rows = [{"id": f"q{i}", "query": f"What is {i} + 0 ?", "answer": 4} for i in range(3)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = odar("sample", "data.jsonl")
    assert (result.code, "3 questions in samples.jsonl" in result.out) == (0, True)
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert lines[0]["format"] == "odar-samples-1"
    assert [candidate["agent"] for candidate in lines[1]["candidates"]] == ["fast", *["slow"] * 5]
    assert lines[1]["candidates"][0]["tokens"] == [["Answer:", -0.1], [" 4", -0.1]]
    questions = load_questions(tmp_path / "samples.jsonl", 0.1)
    assert [question.correct for question in questions] == [(True, True, True, True, False, False)] * 3
    asked = len(provider.requests)
    odar("sample", "data.jsonl")
    assert len(provider.requests) == asked  # it goes on where it was
    fused = odar("fuse", "samples.jsonl")
    assert (fused.code, "stopping early" in fused.out) == (0, True)
    assert max(map(len, fused.out.splitlines())) <= 80
    body = json.loads(odar("fuse", "samples.jsonl", "--json").out)
    assert body["rules"][0]["against_argmin"]["value"] == 0.0


def test_a_file_of_other_settings_is_not_mixed_with(odar, provider, tmp_path):
    (tmp_path / "data.jsonl").write_text(json.dumps({"query": "What is 4 + 0 ?", "answer": 4}))
    assert odar("sample", "data.jsonl", "--yes").code == 0
    result = odar("sample", "data.jsonl", "--yes", "--set", "slow.temperature=0.9")
    assert (result.code, "made with other models" in result.err) == (2, True)
