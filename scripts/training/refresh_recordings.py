"""Write features and difficulty of recorded questions again, after the estimator or its vocabularies have changed.

    python scripts/training/refresh_recordings.py docs/data/embedded-*.jsonl.gz
    python scripts/training/refresh_recordings.py runs/local-pair/recording.jsonl.gz --profile local

Answers stay as they are. With `--profile` the settings and the calibration in the first line become those of the profile.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from odar.config import load_settings
from odar.difficulty.estimator import LearnedEstimator
from odar.engine import Odar
from odar.lab.recording.files import open_recording, write_recording
from odar.lab.recording.header import Header, header_of
from odar.lab.recording.schema import RecordedItem, features_of
from odar.types import Query


def refreshed(item: RecordedItem, estimator: LearnedEstimator) -> RecordedItem:
    """The item as it would be recorded today."""
    estimate = estimator.estimate(Query(item.query))
    return replace(item, features=features_of(estimate), difficulty=estimate.difficulty)


def with_profile(header: Header, profile: str) -> Header:
    """The header with the settings and the calibration of a profile; agents and models stay as they were."""
    today = header_of(Odar(load_settings(profile, environ={})))
    kept = {name: header.settings[name] for name in ("fast", "second", "slow", "agents", "models")}
    return replace(header, settings={**today.settings, **kept}, calibration=today.calibration)


def main() -> None:
    """Rewrite each file in its place."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("files", type=Path, nargs="+")
    cli.add_argument("--profile", help="profile whose settings and calibration are written into the first line")
    args = cli.parse_args()
    estimator = LearnedEstimator.load()
    for file in args.files:
        recording = open_recording(file)
        before = list(recording.items())
        after = [refreshed(item, estimator) for item in before]
        header = with_profile(recording.header, args.profile) if args.profile else recording.header
        write_recording(file, header, after)
        moved = sum(a.difficulty != b.difficulty for a, b in zip(before, after, strict=True))
        print(f"{file}: {len(after)} items, {moved} difficulties changed")


if __name__ == "__main__":
    main()
