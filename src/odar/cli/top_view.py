"""`odar top` on a screen: everything in 80 columns and 24 lines, more of it on a larger one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich import markup
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from odar.cli.harmless import harmless
from odar.cli.top_figures import Figures

_PATHS = ("simple", "medium", "hard")
_BAR = 20
_WITHOUT_BAR = 58
"""Columns that the other figures of a path take."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_FIXED_LINES = 18
"""What the page has above and around its table of models."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is shown."""

    url: str
    status: str
    """ready, draining, or what is wrong."""
    figures: Figures
    history: Sequence[float] = ()
    """Requests per second, the latest last."""
    live: bool = True


def page(content: Page, width: int, height: int) -> RenderableType:
    """The whole screen."""
    shown = content.figures
    rows = max(1, height - _FIXED_LINES)
    return Group(
        _head(content, width),
        Rule(style="dim"),
        _summary(shown, content.history, width),
        _errors(shown),
        Text(),
        _paths(shown, width),
        Text(),
        _models(shown, rows),
        Text(),
        _store(shown),
    )


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as a row of blocks, the largest one full.

    >>> sparkline([0, 1, 2, 4], 4)
    ' ▂▄█'
    >>> sparkline([0, 0], 4)
    '  '
    """
    shown = list(values)[-width:]
    most = max(shown, default=0) or 1
    return "".join(_BLOCKS[-1 if v == most else int(v / most * (len(_BLOCKS) - 1))] if v else " " for v in shown)


def _head(content: Page, width: int) -> Table:
    colour = {"ready": "green", "draining": "yellow"}.get(content.status, "bold red")
    window = content.figures.window_s
    span = "since start" if window is None else f"last {window:.0f} s"
    table = Table.grid(expand=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    left = f"[bold]odar top[/] {_plain(content.url)} [{colour}]{_plain(content.status)}[/] [dim]{span}[/]"
    table.add_row(left, f"{time.strftime('%H:%M:%S')}{' [dim]q quits[/]' if content.live else ''}")
    return table


def _summary(shown: Figures, history: Sequence[float], width: int) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    for _ in range(3):
        table.add_column(ratio=1, no_wrap=True)
    limit = "" if shown.in_flight_limit is None else f" [dim]of {shown.in_flight_limit:.0f}[/]"
    line = sparkline(history, max(0, width // 3 - 22))
    share = f"{shown.degraded / shown.requests:.1%}" if shown.requests else "-"
    cost = "-" if shown.cost_per_h is None else f"${shown.cost_per_h:,.2f}"
    unpriced = f"[yellow]{shown.unpriced_calls:.0f}[/]" if shown.unpriced_calls else "0"
    table.add_row(
        f"[dim]requests[/]  {_rate(shown.requests_per_s)} [cyan]{line}[/]",
        f"[dim]calls[/]     {_rate(shown.calls_per_s)}",
        f"[dim]cost/h[/]   {cost}",
    )
    table.add_row(
        f"[dim]in flight[/] {_number(shown.in_flight)}{limit}",
        f"[dim]degraded[/]  {share}",
        f"[dim]unpriced[/] {unpriced}",
    )
    return table


def _errors(shown: Figures) -> str:
    if not shown.errors:
        return "[dim]errors[/]    none"
    listed = "  ".join(f"{status}: {count:,.0f}" for status, count in shown.errors.items())
    return f"[dim]errors[/]    [red]{listed}[/]"


def _paths(shown: Figures, width: int) -> Table:
    room = max(0, min(_BAR, width - _WITHOUT_BAR))
    table = _table(("path", "left"), ("", "left"), ("share", "right"), ("requests", "right"))
    for title in ("p50", "p99"):
        table.add_column(title, justify="right", no_wrap=True, min_width=9)
    known = [*_PATHS, *(path for path in shown.paths if path not in _PATHS)]
    for path in known:
        each = shown.paths.get(path)
        name = "no answer" if path == "none" else _plain(path)
        if each is None:
            table.add_row(name, "", "-", "0", "-", "-", style="dim")
            continue
        bar = "█" * round(each.share * room)
        table.add_row(
            name,
            f"[cyan]{bar}[/][dim]{'░' * (room - len(bar))}[/]",
            f"{each.share:.0%}",
            f"{each.requests:,.0f}",
            _seconds(each.p50),
            _seconds(each.p99),
        )
    return table


def _models(shown: Figures, rows: int) -> Table:
    table = _table(("model", "left"), ("provider", "left"), ("breaker", "left"))
    for title in ("calls", "failed", "tokens out"):
        table.add_column(title, justify="right", no_wrap=True)
    table.columns[0].ratio, table.columns[0].overflow = 1, "ellipsis"
    for name, model in list(shown.models.items())[:rows]:
        failed = _rate(model.failures_per_s)
        table.add_row(
            _plain(name),
            _plain(model.provider),
            _breaker(shown.breakers.get(model.provider)),
            _rate(model.calls_per_s),
            f"[red]{failed}[/]" if model.failures_per_s else failed,
            _rate(model.tokens_per_s),
        )
    idle = {p: s for p, s in shown.breakers.items() if p not in {m.provider for m in shown.models.values()}}
    for provider, state in list(idle.items())[: max(0, rows - len(shown.models))]:
        table.add_row("[dim]-[/]", _plain(provider), _breaker(state), "-", "-", "-")
    if len(shown.models) > rows:
        table.caption = f"{len(shown.models) - rows} more on a taller screen"
    return table


def _store(shown: Figures) -> str:
    if shown.store_up is None:
        return "[dim]store[/] not reported"
    state = "[green]writing[/]" if shown.store_up else "[bold red]cannot write[/]"
    lost = f" [red]{shown.store_lost:.0f} lost[/]" if shown.store_lost else ""
    return f"[dim]store[/] {state}, {_number(shown.store_queue)} waiting{lost}"


def _breaker(state: str | None) -> str:
    colour = {"closed": "green", "open": "bold red"}.get(state or "", "yellow")
    return "-" if state is None else f"[{colour}]{state}[/]"


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True, caption_justify="left")
    for title, side in columns:
        table.add_column(title, justify="right" if side == "right" else "left", no_wrap=True)
    return table


def _plain(text: str) -> str:
    """What a gateway, or whoever answers in its place, calls its models: neither markup nor commands."""
    return markup.escape(harmless(text))


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.1f}/s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    """
    >>> _seconds(0.0042), _seconds(1.234), _seconds(None)
    ('4.2 ms', '1.23 s', '-')
    """
    if value is None:
        return "-"
    return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value:.2f} s"
