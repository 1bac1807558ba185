"""Observers: an observer receives an event for every step of a question.

Steps are marked with `observed`; they nest as their calls do. `telemetry` has an observer that turns steps into
OpenTelemetry spans; any other object of this shape works too.
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
    """Receives the steps of questions. Its methods return quickly and never raise."""

    def watch(self, step: str, fields: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """A context manager for the duration of one step.

        Args:
            step: request · query · difficulty · decision · agent · chat · forward · fusion.
            fields: the arguments of the function that does the step, by name; `self` is its object.
        """

    def tell(self, fact: Any) -> None:
        """Receive a fact about the current step: its result, or a mapping of attributes."""

    def headers(self) -> Mapping[str, str]:
        """Headers for a request to a provider, so that its spans can belong to the same trace."""


_CURRENT: ContextVar[Observer | None] = ContextVar("odar_observer", default=None)


def observed(step: str, *, outermost: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function as a step of a question: the observer sees its start, its result and its end.

    The outermost step uses `self.observer`; the steps inside use the same observer.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        async def watched(observer: Observer, *args: P.args, **kwargs: P.kwargs) -> Any:
            token = _CURRENT.set(observer)
            try:
                with observer.watch(step, signature.bind(*args, **kwargs).arguments):
                    result = await cast(Any, function(*args, **kwargs))
                    observer.tell(result)
                    return result
            finally:
                _CURRENT.reset(token)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
            observer: Observer | None = cast(Any, args[0]).observer if outermost else _CURRENT.get()
            if observer is None:
                # Return the coroutine itself: a wrapper would cost time at every step of the event loop.
                return function(*args, **kwargs)
            if inspect.iscoroutinefunction(function):
                return watched(observer, *args, **kwargs)
            with observer.watch(step, signature.bind(*args, **kwargs).arguments):
                result = function(*args, **kwargs)
                observer.tell(result)
                return result

        return cast(Callable[P, R], wrapper)

    return decorate


def tell(fact: Any) -> None:
    """Send a fact to the observer of the current step, if there is one."""
    if (observer := _CURRENT.get()) is not None:
        observer.tell(fact)


def outgoing_headers() -> Mapping[str, str] | None:
    """The observer's headers for a request to a provider; None without an observer."""
    observer = _CURRENT.get()
    return None if observer is None else observer.headers()
