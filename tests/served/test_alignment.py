from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, replace

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from odar.background import CURRENT_KEY
from odar.calibration_file import Source, Statistics
from odar.errors import StoreError
from odar.policy.energy import Alignment
from odar.policy.signals import AnswerKind, AnswerSignals, shipped_tables
from odar.served.alignment import ServedAlignment, alignment_path, drift
from odar.served.histogram import Histogram
from odar.settings import StoreSettings
from support.waiting import wait_until

SOURCE = Source("m", "0" * 32, 0.2, 0.9, 96, 0.1)
OTHER = replace(SOURCE, model="other")
DRAWS = np.random.default_rng(1).gamma(4, 0.05, 60).tolist()
DAY_S = 86_400.0


def alignment(file=None, calibrated=None, clock=lambda: 0.0, timer=lambda: 0.0):
    return ServedAlignment(calibrated or {}, file, clock, timer)


def count(known):
    """Return the weight of the served candidates of SOURCE."""
    return next((row.count for row in known.report({}) if row.model == SOURCE.model), 0)


def feed(where, source=SOURCE, draws=DRAWS):
    for energy in draws:
        where.count(source, energy)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / "odar.alignment.json"


def load(file):
    return alignment(file).load()


def test_served_energies_show_drift_and_change_nothing():
    known = alignment(calibrated={OTHER: Statistics(0.5, 0.25, 100)})
    feed(known)
    feed(known, OTHER)
    known.sync()
    assert known.find(OTHER) == Alignment(0.5, 0.25)
    assert known.find(SOURCE) is None
    rows = known.report({"0" * 32: "answer"})
    assert [(row.model, row.step, row.count, row.drifting) for row in rows] == [
        ("m", "answer", 60, False),
        ("other", "answer", 60, True),
    ]


def test_served_energies_are_shared_by_processes(file):
    first = alignment(file)
    feed(first)
    first.close()
    assert count(alignment(file)) == 60
    assert file.stat().st_mode & 0o077 == 0


def test_served_energies_decay():
    now = [0.0]
    known = alignment(clock=lambda: now[0])
    feed(known)
    known.sync()
    now[0] = 7 * DAY_S
    known.sync()
    assert count(known) == pytest.approx(30)


def test_the_file_contains_only_statistics(file):
    first = alignment(file)
    feed(first)
    first.close()
    body = json.loads(file.read_text())
    assert body["format"] == "odar-alignment-5"
    ((source, _key, _signal), histogram), *_ = body["counts"]
    assert source == asdict(SOURCE)
    assert set(histogram) == {"day", "bins"}


def test_counts_of_concurrent_processes_add_up(file):
    """Four processes add twenty energies each at the same time."""
    code = (
        "import sys; from pathlib import Path\n"
        "from odar.served.alignment import ServedAlignment\n"
        "from odar.calibration_file import Source\n"
        f"source = Source('m', '{'0' * 32}', 0.2, 0.9, 96, 0.1)\n"
        "table, file, still = {}, Path(sys.argv[1]), lambda: 86400.0\n"
        "served = ServedAlignment(table, file, still, lambda: 0.0)\n"
        "served.sync()\n"
        "for i in range(10): served.count(source, 0.1); served.count(source, 0.3); served.sync()\n"
        "assert served.last_error is None, served.last_error"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(file)]) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    total = load(file)[SOURCE, "", ""]
    assert total.count == 80.0


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ("", "delete it"),
        ("{", "delete it"),
        ("[]", "delete it"),
        ('{"format": "odar-alignment-9", "counts": []}', "upgrade odar"),
        ('{"format": "odar-alignment-0", "counts": []}', "delete it"),
        ('{"format": 1}', "is it the right file?"),
        ("[" * 5000, "delete it"),
    ],
)
def test_a_damaged_file_is_reported_and_memory_is_used(file, content, remedy):
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(StoreError, match=r"odar\.alignment\.json") as raised:
        load(file)
    assert remedy in str(raised.value)
    known = alignment(file)
    feed(known)
    known.sync()
    assert remedy in known.last_error
    assert count(known) == 60  # from memory
    assert file.read_text() == content
    file.unlink()
    feed(known)
    known.sync()
    assert known.last_error is None


def test_the_number_of_sources_is_bounded(file):
    known = alignment(file)
    for i in range(1, 4000):
        feed(known, replace(SOURCE, max_tokens=i), [0.1] * (1 + i % 5))
    known.sync()
    assert len(known.total) == 1000
    assert min(running.count for running in known.total.values()) > 1
    assert load(file) == known.total


def test_an_unused_source_is_removed(file):
    now = [0.0]
    known = alignment(file, clock=lambda: now[0])
    feed(known, OTHER, [0.1])
    known.sync()
    now[0] = 30 * DAY_S
    feed(known, SOURCE, [0.1, 0.2])
    known.sync()
    assert set(load(file)) == {(SOURCE, "", "")}


def test_observing_does_not_wait_for_the_disk(file, monkeypatch):
    """Energies can be observed while another thread is blocked in the file."""
    inside, go = threading.Event(), threading.Event()
    known = alignment(file)
    write = known._write

    def slow(file, new):
        inside.set()
        go.wait(10)
        return write(file, new)

    monkeypatch.setattr(known, "_write", slow)
    known.count(SOURCE, 0.2)  # starts the blocked thread
    assert inside.wait(10)
    feed(known)
    go.set()
    known.sync()
    assert count(known) == 61


def test_the_file_is_next_to_the_database(tmp_path):
    assert alignment_path(StoreSettings(url=str(tmp_path / "t.db"))) == tmp_path / "t.alignment.json"
    assert alignment_path(StoreSettings(url="postgresql://db/odar")).name == "odar.alignment.json"
    assert alignment_path(StoreSettings()).name == "odar.alignment.json"


def test_setting_the_clock_back_does_not_stop_syncs(file):
    """Syncs are due by a timer; by the clock, the next one would be due a day later."""
    now, steady = [2 * DAY_S], [0.0]
    known = alignment(file, clock=lambda: now[0], timer=lambda: steady[0])
    known.sync()
    now[0] -= DAY_S
    steady[0] = 31.0
    feed(known)
    wait_until(file.exists)
    assert load(file)[SOURCE, "", ""].count >= 1


def test_setting_the_clock_forward_does_not_trigger_a_sync(file):
    now = [0.0]
    known = alignment(file, clock=lambda: now[0])
    known.sync()
    now[0] = DAY_S
    feed(known)
    time.sleep(0.05)
    assert not file.exists()


@contextmanager
def no_room():
    """Limit the size of files to ten bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_energies_observed_while_the_disk_is_full_are_written_later(file):
    known = alignment(file)
    with no_room():
        feed(known)
        known.sync()
        assert "cannot be written" in known.last_error
        assert count(known) == len(DRAWS), "known meanwhile"
        assert [each.name for each in file.parent.iterdir()] == ["odar.alignment.json.lock"], "no draft is left"
    known.close()
    assert known.last_error is None
    assert load(file)[SOURCE, "", ""].count == len(DRAWS)
    known.sync()
    assert load(file)[SOURCE, "", ""].count == len(DRAWS), "once"


def complaint_about(file):
    known = alignment(file)
    feed(known)
    known.sync()
    return known.last_error


def test_an_unreadable_unwritable_or_locked_file_is_reported(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    assert "folder cannot be read: Is a directory" in complaint_about(tmp_path / "folder")
    (tmp_path / "file").write_text("")
    assert "odar.json cannot be written: " in complaint_about(tmp_path / "file" / "odar.json")
    monkeypatch.setattr("odar.served.counts._LOCK_TIMEOUT_S", 0.05)
    with FileLock(tmp_path / "odar.json.lock"):
        assert "is locked by another process" in complaint_about(tmp_path / "odar.json")


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_an_invalid_count_is_damage(file, weight):
    assert complaint_about(file) is None
    body = json.loads(file.read_text())
    bins = body["counts"][0][1]["bins"]
    bins[next(iter(bins))] = weight
    file.write_text(json.dumps(body))
    with pytest.raises(StoreError, match="is damaged; delete it to start again"):
        load(file)


@contextmanager
def asking(key):
    token = CURRENT_KEY.set(key)
    try:
        yield
    finally:
        CURRENT_KEY.reset(token)


def test_the_signals_of_other_keys_count_little():
    known, alone = alignment(), alignment()
    answers = [AnswerSignals(AnswerKind.DIRECT, True, float(length)) for length in range(1, 101)]
    with asking("honest"):
        for answer in answers:
            known.count_signals(SOURCE, answer)
            alone.count_signals(SOURCE, answer)
    with asking("attacker"):
        for answer in answers * 20:
            known.count_signals(SOURCE, replace(answer, length=1e5))
    known.sync()
    alone.sync()
    with asking("honest"):
        tables = known.tables(SOURCE)
        own = alone.tables(SOURCE)
    ranks = [each.rank(AnswerKind.DIRECT.value, "length", 50.0) for each in (tables, own)]
    assert ranks[0] == pytest.approx(ranks[1], abs=0.06)
    with asking("newcomer"):
        newcomer = known.tables(SOURCE)
    assert newcomer.rank("direct", "length", 50.0) == shipped_tables().rank("direct", "length", 50.0)


def test_served_quantiles_are_mixed_with_the_shipped_ones():
    shipped = shipped_tables().tables["direct", "length"]
    for count, weight in ((30, 30 / 130), (900, 0.9)):
        known = alignment()
        for _ in range(count):
            known.count_signals(SOURCE, AnswerSignals(AnswerKind.DIRECT, True, 1000.0))
        known.sync()
        found = known.tables(SOURCE).tables["direct", "length"]
        assert found == pytest.approx(weight * 1000 + (1 - weight) * shipped, rel=0.02)


def test_one_key_does_not_displace_the_sources_of_others(file):
    known = alignment(file)
    with asking("honest"):
        feed(known, OTHER, [1.0])
    with asking("attacker"):
        for number in range(3500):
            feed(known, replace(SOURCE, temperature=number / 1000), [1.0, 2.0])
            if number % 500 == 0:
                known.sync()
    known.close()
    assert [served.source for served in load(file) if served.key == "honest"] == [OTHER]


CALIBRATED = Statistics(0.2, 0.1, 100)


def drawn(mean, deviation, count, seed=0):
    shape = (mean / deviation) ** 2
    energies = np.random.default_rng(seed).gamma(shape, mean / shape, count)
    return Histogram.from_values(energies.tolist(), 0.0).alignment()


@given(st.integers(0, 10**6), st.integers(30, 2000))
def test_the_same_energies_do_not_drift(seed, count):
    assert drift(drawn(0.2, 0.1, count, seed), count, CALIBRATED)[1] is False


@given(st.integers(0, 10**6))
@pytest.mark.parametrize("mean", [0.1, 0.3])
def test_a_mean_shifted_by_one_deviation_is_drift(mean, seed):
    z, drifting = drift(drawn(mean, 0.09, 300, seed), 300, CALIBRATED)
    assert drifting
    assert np.sign(z) == np.sign(mean - 0.2)


def test_a_doubled_deviation_is_drift():
    assert drift(drawn(0.2, 0.2, 400), 400, CALIBRATED)[1]


def test_a_small_shift_is_not_drift_even_if_significant():
    z, drifting = drift(drawn(0.225, 0.1, 100_000), 100_000, Statistics(0.2, 0.1, 100_000))
    assert z > 20
    assert not drifting


@pytest.mark.parametrize(
    ("count", "calibrated"),
    [(29, CALIBRATED), (100, Statistics(0.2, 0.0, 100)), (100, Statistics(0.2, 0.1, 1))],
)
def test_too_few_energies_give_no_drift(count, calibrated):
    assert drift(Alignment(0.9, 0.1), count, calibrated) == (None, False)
