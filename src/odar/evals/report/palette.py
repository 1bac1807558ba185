"""Colours with a meaning, in three forms: by day, by night, and as placeholders that the page's style fills in.

A figure is drawn once with placeholders; its SVG then follows the page from light to dark to paper. Its PNG has
the colours of the day.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Palette:
    """What each colour is for."""

    ink: str
    muted: str
    grid: str
    surface: str
    accent: str
    """ODAR."""
    other: str
    """What it is compared with."""
    simple: str
    medium: str
    hard: str
    good: str
    bad: str

    def css(self) -> str:
        """As CSS variables."""
        return " ".join(f"--{field.name}: {getattr(self, field.name)};" for field in fields(self))


DAY = Palette(
    ink="#1b2330", muted="#5f6b7d", grid="#e3e7ed", surface="#ffffff", accent="#c8471c", other="#5b7c99",
    simple="#a9d3e8", medium="#4a90c2", hard="#1f4e79", good="#2a7f62", bad="#b23a48",
)  # fmt: skip
NIGHT = Palette(
    ink="#e8ebf0", muted="#9aa6b8", grid="#2c3542", surface="#141a22", accent="#ff8f66", other="#8fb0cc",
    simple="#bfe3f5", medium="#5ea8dc", hard="#3570ad", good="#5cc5a0", bad="#f0808c",
)  # fmt: skip
PLACEHOLDERS = Palette(**{field.name: f"#0101{i:02x}" for i, field in enumerate(fields(Palette), start=16)})


def fill_in(svg: str) -> str:
    """A drawing with placeholders, its colours left to the page.

    >>> fill_in("fill: " + PLACEHOLDERS.ink)
    'fill: var(--ink)'
    """
    for field in fields(Palette):
        svg = svg.replace(getattr(PLACEHOLDERS, field.name), f"var(--{field.name})")
    return svg
