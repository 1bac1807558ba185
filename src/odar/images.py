"""Pictures from files: read, recognised by their content, refused with a clear word."""

from __future__ import annotations

from pathlib import Path

from odar.errors import InputError
from odar.files import user_path
from odar.types import Image

MAX_BYTES = 20 * 1024 * 1024
_SIGNATURES = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
)


def load_image(path: str | Path) -> Image:
    """An image file as part of a query.

    Raises:
        InputError: it is missing, too large, or no PNG, JPEG, GIF or WebP.
    """
    file = user_path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"image {str(path)!r} is larger than {MAX_BYTES // 1024**2} MB")
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"image {str(path)!r} cannot be read: {error.strerror or error}") from None
    return recognise(data, f"image {str(path)!r}")


def recognise(data: bytes, what: str) -> Image:
    """The bytes of a picture as part of a query; `what` names it in the error.

    Raises:
        InputError: it is no PNG, JPEG, GIF or WebP.
    """
    for media_type, offset, signature in _SIGNATURES:
        if data[offset : offset + len(signature)] == signature:
            return Image(media_type, data)
    raise InputError(f"{what} is not a PNG, JPEG, GIF or WebP file")
