"""`make fuzz`: atheris on one parser, for so many seconds. Exit code 1 where it breaks; the input is printed.

PYTHONPATH=src:tests .venv-fuzz/bin/python -m fuzz TARGET [SECONDS]
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

_LIMITS = ("-max_len=4096", "-timeout=10", "-print_final_stats=1")


def main() -> None:
    """Instrument, then try inputs until the time is up."""
    name, seconds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with atheris.instrument_imports(include=["odar"]):
        from fuzz.targets import SEEDS, TARGETS, WORDS
    home = Path(sys.prefix) / "corpus"  # what was learned stays with the environment, and goes with it
    corpus, words = home / name, home / f"{name}.dict"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    escaped = ("".join(map("\\x{:02x}".format, word)) for word in WORDS[name])
    words.write_text("".join(f'"{word}"\n' for word in escaped))
    options = [f"-max_total_time={seconds}", f"-dict={words}", f"-artifact_prefix={home}/{name}-", *_LIMITS]
    atheris.Setup([sys.argv[0], str(corpus), *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
