"""What a caller has already been shown of an answer that is still being generated."""

from __future__ import annotations

from odar.providers.base import OnText


class Stream:
    """Hands text over, and remembers that it did.

    Args:
        on_text: whom to hand it to; None for nobody.
        final: whether what was handed over is beyond recall, as on a wire.

    >>> stream = Stream(lambda text: None, final=True)
    >>> stream.handler("Par")
    >>> stream.committed
    True
    """

    def __init__(self, on_text: OnText | None, *, final: bool = False) -> None:
        self._on_text = on_text
        self._final = final
        self._started = False

    @property
    def handler(self) -> OnText | None:
        """What providers are given."""
        return None if self._on_text is None else self._hand_over

    @property
    def committed(self) -> bool:
        """Whether another answer can no longer take this one's place."""
        return self._final and self._started

    def _hand_over(self, text: str) -> None:
        self._started = True
        if self._on_text is not None:
            self._on_text(text)
