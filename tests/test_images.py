from __future__ import annotations

import pytest

from odar.errors import InputError
from odar.inputs import MAX_BYTES, load_image


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0...", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_the_type_is_detected_from_the_content(tmp_path, data, media_type):
    file = tmp_path / "picture.dat"
    file.write_bytes(data)
    image = load_image(file)
    assert (image.media_type, image.data) == (media_type, data)


def test_data_that_is_not_an_image_is_rejected(tmp_path):
    file = tmp_path / "picture.png"
    file.write_bytes(b"not really")
    with pytest.raises(InputError, match="not a PNG"):
        load_image(file)
    with pytest.raises(InputError, match="cannot be read"):
        load_image(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        load_image(tmp_path / "none.png")


def test_a_huge_file_is_rejected_without_reading_it(tmp_path):
    file = tmp_path / "huge.png"
    with file.open("wb") as out:
        out.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than 20 MB"):
        load_image(file)
