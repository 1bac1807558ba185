from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime

import pytest

from odar.serving.keys import digest_of


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ODAR_STORE_URL", str(tmp_path / "odar.db"))
    return tmp_path / "odar.db"


def test_a_key_is_shown_once_and_stored_as_a_hash(odar, store):
    result = odar("keys", "create", "ann")
    secret = result.out.strip()
    assert (result.code, secret.startswith("odar_sk_"), len(secret) >= 40) == (0, True, True)
    assert "not shown again" in result.err
    assert secret not in result.err
    rows = sqlite3.connect(store).execute("SELECT name, digest FROM keys").fetchall()
    assert rows == [("ann", digest_of(secret))]
    assert secret not in odar("keys", "list").out
    assert secret not in odar("keys", "list", "--json").out


def test_limits_are_stored_and_shown_within_80_columns(odar, monkeypatch):
    options = "--budget-day 2 --budget-month 20.5 --rate 1/s --models odar,m --max-path medium"
    made = json.loads(odar("keys", "create", "ann", *options.split(), "--json").out)
    assert made["secret"].startswith(made["prefix"])
    (listed,) = json.loads(odar("keys", "list", "--json").out)
    assert (listed["budget_day_usd"], listed["budget_month_usd"], listed["rate_per_min"]) == (2, 20.5, 60)
    assert (listed["models"], listed["max_path"]) == (["odar", "m"], "medium")
    assert (listed["today"], "digest" in listed) == ({"usd": 0.0, "unknown": 0}, False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    table = re.sub(r"\x1b\[[0-9;]*m", "", odar("keys", "list").out)
    assert max(map(len, table.splitlines())) <= 80
    assert "$2/day; $20.5/month; 60/min" in " ".join(table.split())


def test_an_admin_key_is_marked(odar):
    assert json.loads(odar("keys", "create", "chief", "--admin", "--json").out)["admin"] is True
    odar("keys", "create", "ann")
    listed = json.loads(odar("keys", "list", "--json").out)
    assert {key["name"]: key["admin"] for key in listed} == {"chief": True, "ann": False}
    assert "admin" in odar("keys", "list").out


def test_a_revoked_key_is_listed_only_on_request(odar):
    prefix = odar("keys", "create", "ann").out[:14]
    assert odar("keys", "revoke", f"{prefix}…").out.startswith("revoked ann (key_")
    assert odar("keys", "list").err == "odar: no keys; make one with: odar keys create NAME\n"
    assert "revoked 20" in odar("keys", "list", "--all").out
    again = odar("keys", "revoke", "ann")
    assert (again.code, "no key matches 'ann'" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "often"], "--rate 'often' is not a rate; write 60/min, 2/s or 30/hour"),
        (["--rate", "0/min"], "--rate '0/min' is not a rate"),
        (["--rate", "5/year"], "--rate '5/year' is not a rate"),
        (["--models", " , "], "--models ' , ' names nothing; leave it out for all"),
    ],
)
def test_invalid_limits_are_a_one_line_error(odar, options, message):
    result = odar("keys", "create", "ann", *options)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_an_invalid_limit_creates_no_key(odar):
    assert odar("keys", "create", "ann", "--budget-day", "nan").code == 2
    assert odar("keys", "create", "ann", "--models", ",").code == 2
    assert json.loads(odar("keys", "list", "--json").out) == []


def test_the_list_shows_spending_and_counts_unknown_costs(odar, store):
    made = json.loads(odar("keys", "create", "ann", "--json").out)
    odar("keys", "create", "bob")
    today = datetime.now(UTC).date().isoformat()
    another = today[:8] + ("02" if today.endswith("01") else "01")
    with closing(sqlite3.connect(store)) as connection, connection:
        for day, usd, unknown in ((today, 0.25, 3), (another, 3.25, 0)):
            connection.execute("INSERT INTO spending VALUES (?, ?, 5, ?, ?)", (made["id"], day, usd, unknown))
    ann, bob = json.loads(odar("keys", "list", "--json").out)
    assert (ann["today"], ann["month"]) == ({"usd": 0.25, "unknown": 3}, {"usd": 3.5, "unknown": 3})
    assert bob["today"] == {"usd": 0.0, "unknown": 0}
    table = " ".join(odar("keys", "list").out.split())
    assert "$0.2500 +3 unknown" in table
    assert "$3.5000 +3 unknown" in table


def test_a_store_that_cannot_be_opened_has_its_own_exit_code(odar, store):
    store.write_text("no database " * 100)
    result = odar("keys", "list")
    assert (result.code, result.out) == (6, "")
    assert result.err == f"odar: store {store}: file is not a database\n"


def test_a_target_is_stored_and_shown(odar):
    made = json.loads(odar("keys", "create", "batch", "--target-calls", "1.8", "--json").out)
    assert (made["target_calls"], made["target_cost_usd"]) == (1.8, None)
    assert "target 1.8 calls" in odar("keys", "list").out
    both = odar("keys", "create", "x", "--target-calls", "1.8", "--target-cost", "0.01")
    assert (both.code, "target_calls and target_cost_usd are both given" in both.err) == (2, True)
    assert odar("keys", "create", "x", "--max-path", "easy").code == 2
