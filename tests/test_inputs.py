from __future__ import annotations

import base64

import pytest

from odar.errors import InputError
from odar.inputs import MAX_BYTES, load_image, to_query
from odar.types import Image


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


PNG = b"\x89PNG\r\n\x1a\n..."
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def test_images_of_a_question_are_files_urls_or_images(tmp_path):
    file = tmp_path / "cat.png"
    file.write_bytes(PNG)
    sources = [str(file), file, DATA_URL, Image("image/png", PNG)]
    assert {image.data for image in to_query("What is this?", sources).images} == {PNG}
    assert to_query("What?", ["https://example.com/cat.png"]).images[0].url == "https://example.com/cat.png"


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (["none.png"], "'none.png' cannot be read: No such file"),
        ("cat.png", r"images must be a list, such as \['cat.png'\]"),
        ([7], "a file name, a URL or an odar.Image, not int"),
        (["data:image/png;base64,!"], "not valid base64"),
        (["data:text/plain,x"], "must be an http"),
    ],
)
def test_a_bad_image_is_named(images, message):
    with pytest.raises(InputError, match=message):
        to_query("What is this?", images)


def test_messages_are_a_question():
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
    query = to_query(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": parts},
        ],
        [Image("image/gif", b"GIF8")],
    )
    assert [turn.role for turn in query.messages] == ["system", "user", "assistant", "user"]
    assert query.text == "What is this?"
    assert [image.media_type for image in query.messages[-1].images] == ["image/png", "image/gif"]
    assert query.images == query.messages[-1].images


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "hold no question"),
        ([{"role": "system", "content": "x"}], "hold no question"),
        (["hello"], "message 0 must be an object with a role"),
        ([{"role": "robot", "content": "x"}], "message 0 must be an object with a role"),
        ([{"role": "user"}], "content of message 0 must be a string or a list"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "neither text nor image_url"),
        (7, "must be a string or a list of messages, not int"),
    ],
)
def test_bad_messages_are_named(messages, message):
    with pytest.raises(InputError, match=message):
        to_query(messages)
