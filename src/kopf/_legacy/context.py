"""What is being handled right now, for those who have looked it up in the former context variables."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from kopf._handlers.causes import ChangingCause
from kopf._handlers.context import SubhandlingContext, current_subhandling
from kopf._handlers.handlers import ChangingHandler


class _Variable(abc.ABC):
    """It is only read: what is handled, is up to the framework."""

    def get(self, *default: Any) -> Any:
        """Get the value, or the default. With no default, raises :class:`LookupError` outside of handlers."""
        context = current_subhandling.get(None)
        if context is not None:
            return self._pick(context)
        if default:
            return default[0]
        raise LookupError("No change of any object is being handled here.")

    @abc.abstractmethod
    def _pick(self, context: SubhandlingContext) -> object: ...


class _CauseVariable(_Variable):
    def _pick(self, context: SubhandlingContext) -> ChangingCause:
        return context.cause


class _HandlerVariable(_Variable):
    def _pick(self, context: SubhandlingContext) -> ChangingHandler:
        return context.parent


@contextlib.contextmanager
def context(values: Iterable[tuple[ContextVar[Any], Any]]) -> Iterator[None]:
    """Set context variables for the time of the block."""
    tokens = [(variable, variable.set(value)) for variable, value in values]
    try:
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


cause_var = _CauseVariable()
handler_var = _HandlerVariable()
