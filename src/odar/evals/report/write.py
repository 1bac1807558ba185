"""Panel → report: the page, and each figure as PNG and CSV beside it."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from odar import __version__
from odar.errors import InputError
from odar.evals.replay.arrays import load_arrays
from odar.evals.report.draw import to_csv, to_png
from odar.evals.report.findings import Findings, gather
from odar.evals.report.gallery import gallery
from odar.evals.report.page import Made, page
from odar.evals.taxonomy import KINDS
from odar.files import written_whole
from odar.recording.files import open_recording
from odar.recording.schema import RecordedItem

LIBRARIES = ("numpy", "scipy", "statsmodels", "matplotlib", "pyarrow")


def write_report(
    panel: str,
    out: Path,
    command: str,
    figures: Path | None = None,
    calibration: str | None = None,
    split: str = "",
) -> Findings:
    """Write the page, and the figures into a folder if one is given.

    Raises:
        InputError: there is no panel, or the files cannot be written.
    """
    findings = gather(load_arrays(panel, calibration, split))
    made = Made(
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        versions={"odar": __version__, "python": platform.python_version(), **{n: version(n) for n in LIBRARIES}},
        recording=str(panel),
    )
    text = page(findings, _examples(findings, panel), made)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(out) as draft:
            draft.write_text(text, encoding="utf-8")
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
            for slug, figure in gallery(findings).items():
                to_png(figure, findings, figures / f"{slug}.png")
                to_csv(figure, findings, figures / f"{slug}.csv")
    except OSError as error:
        raise InputError(f"the report cannot be written: {error}") from None
    return findings


def _examples(findings: Findings, place: str) -> dict[int, RecordedItem]:
    """The entries behind two examples of each kind of error, by row."""
    rows = [row for kind in KINDS for row in findings.errors.examples(kind)]
    keys = findings.arrays.items.keys
    found = {entry.key: entry for entry in open_recording(place).items(keys={keys[row] for row in rows})}
    return {row: found[keys[row]] for row in rows}
