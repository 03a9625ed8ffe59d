"""
Context managers of servers: the resources are released at once when they are not needed, not when the garbage is
collected.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Self

from kopf._values.reviews import WebhookClientConfig, WebhookFn


class WebhookContextManager(abc.ABC):
    """
    A server or a tunnel whose iterators are closed on leaving the context.

    Iterators end in the ``finally`` blocks of their own. But they are hardly ever closed explicitly: neither by
    those who leave loops early, nor by the iterators of users that are made of ours.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generators: list[AsyncGenerator[WebhookClientConfig, None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        while self._generators:
            await self._generators.pop().aclose()

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]:
        """Serve with this function, until closed. Give a config when it is ready, and when the config changes."""
        generator = self._serve(fn)
        self._generators.append(generator)
        return generator

    @abc.abstractmethod
    def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]: ...
