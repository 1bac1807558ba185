"""Who watches a query at work: its steps report to an observer, where there is one, and otherwise to nobody.

The steps are marked with `observed`; what is inside one another is nested. `telemetry` has the observer that makes
OpenTelemetry spans of it; any other object of this shape does as well.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class Observer(Protocol):
    """Watches steps. Its methods are quick and never raise."""

    def watch(self, step: str, *subject: Any) -> AbstractContextManager[Any]:
        """Around one step.

        Args:
            step: request · query · difficulty · dispatch · agent · chat · posterior · fusion.
            subject: the arguments of the function that does it.
        """
        ...

    def tell(self, fact: Any) -> None:
        """Something about the step that is being watched: what came of it, or a table of figures."""
        ...

    def headers(self) -> Mapping[str, str]:
        """What a request to a provider carries, so that the server's own spans can join ours."""
        ...


_CURRENT: ContextVar[Observer | None] = ContextVar("odar_observer", default=None)


def observed(step: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function as a step of a query: whoever watches the query sees it begin, its result, and its end."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return _reporting(function, step, lambda subject: _CURRENT.get())

    return decorate


def observing(step: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a method as a place where watching begins: by `self.observer`, down to the innermost step."""

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        return _reporting(method, step, lambda subject: subject[0].observer)

    return decorate


def tell(fact: Any) -> None:
    """Tell whoever watches the present step."""
    if (observer := _CURRENT.get()) is not None:
        observer.tell(fact)


def outgoing_headers() -> Mapping[str, str] | None:
    """What a request to a provider carries for whoever watches it; None where nobody does."""
    observer = _CURRENT.get()
    return None if observer is None else observer.headers()


def _reporting(
    function: Callable[P, R], step: str, who: Callable[[tuple[Any, ...]], Observer | None]
) -> Callable[P, R]:
    """The function, with what it does reported; where nobody watches, the cost is one look."""

    async def watched(observer: Observer, *args: P.args, **kwargs: P.kwargs) -> Any:
        token = _CURRENT.set(observer)
        try:
            with observer.watch(step, *args):
                result = await cast(Any, function(*args, **kwargs))
                observer.tell(result)
                return result
        finally:
            _CURRENT.reset(token)

    @functools.wraps(function)
    def later(*args: P.args, **kwargs: P.kwargs) -> Any:
        observer = who(args)
        # the coroutine itself: one around it would be in the way at every turn of the event loop
        return function(*args, **kwargs) if observer is None else watched(observer, *args, **kwargs)

    @functools.wraps(function)
    def now(*args: P.args, **kwargs: P.kwargs) -> R:
        observer = who(args)
        if observer is None:
            return function(*args, **kwargs)
        with observer.watch(step, *args):
            result = function(*args, **kwargs)
            observer.tell(result)
            return result

    return cast(Callable[P, R], later if inspect.iscoroutinefunction(function) else now)
