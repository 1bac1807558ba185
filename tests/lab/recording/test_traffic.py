from __future__ import annotations

import json

import pytest

from odar.cli.runs import read_chat_body
from odar.errors import InputError
from odar.lab.recording.traffic import chat_body, read_traffic


def turn(text, role="user"):
    return {"role": role, "content": text}


@pytest.mark.parametrize(
    "row",
    [
        {"model": "m", "messages": [turn("What is 2 + 2?")], "stream": True},  # a chat body
        {"custom_id": "1", "body": {"messages": [turn("What is 2 + 2?")]}},  # OpenAI Batch input
        {"request": {"body": {"messages": [turn("What is 2 + 2?")]}}, "response": {"choices": []}},
        {"messages": json.dumps([turn("What is 2 + 2?")]), "response": "{}", "spend": 0.1},  # LiteLLM's spend logs
        {"messages": {}, "proxy_server_request": json.dumps({"messages": [turn("What is 2 + 2?")]})},
        {"input": "What is 2 + 2?", "model": "m"},  # Responses API
        {"messages": [turn("What is 2 + 2?"), turn("4", "assistant")]},  # with the reply
        {"id": "t", "document": {"content": True, "query": {"text": "What is 2 + 2?"}}},  # a trace of ODAR
        {"query": "What is 2 + 2?", "answer": 4},
        {"question": "What is 2 + 2?"},
    ],
)
def test_requests_are_found_in_every_kind_of_log(row):
    query = read_chat_body(chat_body(row))
    assert query.text == "What is 2 + 2?"


def test_system_messages_and_tools_are_kept():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = chat_body({"system": "Be brief.", "messages": [turn("Hi")], "tools": tools, "temperature": 2})
    assert [each["role"] for each in body["messages"]] == ["system", "user"]
    assert body["tools"] == tools and "temperature" not in body


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_log_is_sorted_by_kind_and_odd_rows_are_counted(tmp_path):
    rows = [{"messages": [turn(f"What is {i} + 1?")]} for i in range(5)]
    rows += [rows[0], {"messages": [turn("Write a poem about rain.")]}, {"a": 1}, {"messages": [turn("  ")]}]
    path = write(tmp_path / "log.jsonl", rows)
    with path.open("a") as file:
        file.write("{broken\n[1]\n\n")
    traffic = read_traffic(path, read_chat_body)
    assert (traffic.rows, len(traffic.compared), len(traffic.others), traffic.repeated) == (11, 5, 1, 1)
    assert traffic.skipped["a line is not JSON"] == 1 and sum(traffic.skipped.values()) == 4
    again = read_traffic(write(tmp_path / "longer.jsonl", rows[:5] * 2), read_chat_body)
    assert {task.id for task in again.compared} == {task.id for task in traffic.compared}  # a grown log keeps ids


def test_labels_are_read(tmp_path):
    rows = [
        {"query": "What is 2 + 2?", "answer": 4},
        {"messages": [turn("What is 3 + 3?")], "expected": ["6", "six"]},
    ]
    traffic = read_traffic(write(tmp_path / "log.jsonl", rows), read_chat_body)
    assert [task.gold for task in traffic.compared] == [["4"], ["6", "six"]]


def test_a_random_part_of_a_long_log_is_parsed(tmp_path):
    rows = [{"messages": [turn(f"What is {i} + 1?")]} for i in range(3000)]
    traffic = read_traffic(write(tmp_path / "log.jsonl", rows), read_chat_body, drawn=300)
    numbers = [int(task.query.text.split()[2]) for task in traffic.compared]
    assert (traffic.rows, len(numbers)) == (3000, 300)
    assert 1200 < sum(numbers) / len(numbers) < 1800  # from all parts of the log
    listed = tmp_path / "log.json"
    listed.write_text(json.dumps({"data": rows[:10]}))
    assert read_traffic(listed, read_chat_body).rows == 10


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "holds no requests in 0 rows: it is empty"),
        ('{"a": 1}\n', "a row has no messages, prompt, query or question"),
        ('{"id": "t", "document": {"content": false, "query": {"text_characters": 3}}}\n', "store.content = true"),
        ("\x00\n", "a line is not JSON"),
    ],
)
def test_a_log_without_requests_is_named(tmp_path, content, why):
    (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises(InputError, match=why):
        read_traffic(tmp_path / "log.jsonl", read_chat_body)
    with pytest.raises(InputError, match="no such file"):
        read_traffic(tmp_path / "none.jsonl", read_chat_body)
