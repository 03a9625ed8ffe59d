"""
Unselected objects: read as they are now, whether or not the server selects them for the watch-stream.

Everything is read by lists: so it needs no permissions besides those for the stream. The selectors of the settings are
respected: what they exclude, does not exist for the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from kopf._client.errors import (
    APIGoneError,
    APINetworkError,
    APINotFoundError,
    APIServerError,
    APITooManyRequestsError,
)
from kopf._client.resources.listing import list_pages
from kopf._client.resources.metadata_listing import list_metadata
from kopf._client.resources.targets import Target
from kopf._controller.runtime import Runtime
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.records import replace

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Key = str
"""The namespace & name of an object, with a slash between them; the namespace can be empty."""

_MANY = 500
"""If more objects are to be read, they are listed first: most of those that vanish together do not exist."""

_AT_ONCE = 10
"""How many objects are read at once."""

_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses between attempts while the API is not available, in seconds; the last one is repeated."""

_TEMPORARY_ERRORS = (APINetworkError, APIServerError, APITooManyRequestsError, APIGoneError)


def get_key(meta: ObjectMeta) -> Key:
    """Tell how the object is found."""
    return f"{meta.namespace or ''}/{meta.name}"


class Reader:
    """
    Reads the objects of one target.

    All methods wait for as long as the API is not available, and raise other errors, e.g. :class:`APIForbiddenError`.
    """

    def __init__(self, runtime: Runtime, target: Target) -> None:
        self._runtime = runtime
        self._target = target

    async def read(self, keys: Collection[Key]) -> Mapping[Key, KubeObject]:
        """Read the objects; those that do not exist are left out."""
        if len(keys) > _MANY:
            existing = {*await self.scan(get_key)}
            keys = [key for key in keys if key in existing]
        found: dict[Key, KubeObject] = {}
        remaining = iter(keys)

        async def read_one_by_one() -> None:
            for key in remaining:
                if (obj := await self._read_one(key)) is not None:
                    found[key] = obj

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(keys), _AT_ONCE)):
                    group.create_task(read_one_by_one())
        except ExceptionGroup as e:
            raise e.exceptions[0] from e  # any of them is as good as all of them
        return found

    async def _read_one(self, key: Key) -> KubeObject | None:
        namespace, _, name = key.partition("/")
        selectors = self._target.get_selectors(self._runtime.settings)
        fields = filter(None, [selectors.get("fieldSelector"), f"metadata.name={name}"])
        target = replace(
            self._target,
            scope=namespace or None,
            selectors={**selectors, "fieldSelector": ",".join(fields)},
        )
        api, settings = self._runtime.api, self._runtime.settings

        async def read() -> KubeObject | None:
            async with contextlib.aclosing(list_pages(api, settings, target)) as pages:
                async for page in pages:
                    for obj in page.objects:
                        if get_key(obj.head) == key:  # selectors can be ignored
                            return obj
            return None

        return await self._repeat(read, default=None)

    async def scan(self, pick: Callable[[ObjectMeta], T | None], *, mentioning: str = "") -> list[T]:
        """Look at the metadata of all objects (that mention the text); collect what is picked there."""
        api, settings = self._runtime.api, self._runtime.settings

        async def scan() -> list[T]:
            result: list[T] = []
            async with contextlib.aclosing(list_metadata(api, settings, self._target, mentioning=mentioning)) as pages:
                async for page in pages:
                    result.extend(item for meta in page if (item := pick(meta)) is not None)
            return result

        return await self._repeat(scan, default=[])

    async def _repeat(self, read: Callable[[], Awaitable[R]], *, default: R) -> R:
        """Read until it succeeds; if the whole kind is absent, there is nothing."""
        attempt = 0
        while True:
            try:
                return await read()
            except APINotFoundError:
                return default
            except _TEMPORARY_ERRORS as e:
                delay = _DELAYS[min(attempt, len(_DELAYS) - 1)]
                attempt += 1
                logger.warning("Reading of %r will be repeated in %g seconds: %s", self._target.resource, delay, e)
                await asyncio.sleep(delay)
