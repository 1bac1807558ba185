from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from support.scripts import script

check = script("check_dist")
INFO = "odar-1.dist-info"
METADATA = "Metadata-Version: 2.4\nName: odar\nLicense-Expression: Apache-2.0\n"


def build(folder, *, without=(), extra=(), name="odar-1-py3-none-any.whl", metadata=METADATA, source_without=()):
    files = {*check.NEEDED, f"{INFO}/licenses/LICENSE", *extra} - set(without)
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr(f"{INFO}/METADATA", metadata)
        for file in sorted(files):
            wheel.writestr(file, "x")
    with tarfile.open(folder / "odar-1.tar.gz", "w:gz") as archive:
        for file in sorted(set(check.NEEDED_SOURCE) - set(source_without)):
            archive.addfile(tarfile.TarInfo(f"odar-1/{file}"), io.BytesIO())
    return folder


def test_a_complete_distribution_passes(tmp_path):
    assert check.main(build(tmp_path)) == 0


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"without": ["odar/data/starter.jsonl"]}, "lacks odar/data/starter.jsonl"),
        ({"without": [f"{INFO}/licenses/LICENSE"]}, "does not carry its licence"),
        ({"metadata": "Name: odar\n"}, "does not carry its licence"),
        ({"extra": ["tests/conftest.py"]}, "would install tests beside odar"),
        ({"extra": ["odar/__pycache__/x.pyc"]}, "holds odar/__pycache__/x.pyc"),
        ({"extra": ["odar/model.gguf"]}, "holds odar/model.gguf"),
        ({"name": "odar-1-cp311-cp311-linux_x86_64.whl"}, "is for one platform only"),
        ({"source_without": ["Makefile"]}, "odar-1.tar.gz lacks Makefile"),
    ],
)
def test_faults_are_named(tmp_path, capsys, options, fault):
    assert check.main(build(tmp_path, **options)) == 1
    assert fault in capsys.readouterr().out


def test_a_large_wheel_is_rejected(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "WHEEL_MB", 0.0001)
    assert check.main(build(tmp_path)) == 1
    assert "at most 0.0001 are allowed" in capsys.readouterr().out


def test_an_empty_folder_is_rejected(tmp_path, capsys):
    assert check.main(tmp_path) == 1
    assert "expected one of each" in capsys.readouterr().out
