"""
Conversions: the user's functions convert objects from one version of their definition to another one.

The API servers request conversions when they read and write objects, also on behalf of this operator. So the responses
wait for nothing: the discovery and the indices wait for listings, which wait for conversions.

The objects of one review fail or succeed together. Synchronous functions get all of them in one thread, apart from the
threads of other handlers, which can wait for the converted objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._controller.runtime import Runtime
from kopf._handlers import converting
from kopf._handlers.converting import ConversionError, ConversionRoutes, Obj
from kopf._handlers.handlers import ConversionHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._logging.loggers import objects_logger
from kopf._values import codec
from kopf._values.reviews import ConversionRequest, MalformedReviewError, UnknownWebhookError, parse_conversion

TIMEOUT = 30
"""The time that API servers wait for a conversion, in seconds."""


class Conversions:
    """Responds to conversion reviews on behalf of one operator, from its very start."""

    def __init__(self, runtime: Runtime, registry: OperatorRegistry) -> None:
        self._runtime = runtime
        names = {handler.definition for handler in registry.conversions}
        self.routes = {name: ConversionRoutes(name, registry.conversions) for name in sorted(names)}
        """The routes by the names of the definitions."""

    async def review(self, payload: Mapping[str, Any], definition: str | None) -> Mapping[str, Any]:
        """Respond to the review. Raises :class:`ReviewError` if that is impossible, as :class:`WebhookFn` does."""
        request = parse_conversion(payload)
        routes = self.routes.get(definition or "")
        if routes is None:
            raise UnknownWebhookError(f"There are no conversions of {definition!r:.200}.")
        response: Obj = {"uid": request.uid}
        try:
            async with asyncio.timeout(TIMEOUT):
                response["convertedObjects"] = await self._convert(request, routes)
            response["result"] = {"status": "Success"}
        except TimeoutError:
            text = f"The objects of {definition} were not converted in {TIMEOUT} seconds."
            response["result"] = self._fail(ConversionError(text))
        except ConversionError as e:
            response["result"] = self._fail(e)
        return {"apiVersion": payload["apiVersion"], "kind": payload["kind"], "response": response}

    def _fail(self, error: ConversionError) -> Mapping[str, str]:
        objects_logger.error("%s", error, exc_info=error.__cause__)
        message = str(error) if self._runtime.settings.admission.show_errors else error.public
        return {"status": "Failure", "message": message}

    async def _convert(self, request: ConversionRequest, routes: ConversionRoutes) -> Sequence[codec.Raw]:
        group, _, target = request.desired_version.rpartition("/")
        objs = request.objects
        numbers: dict[str, list[int]] = {}
        for number, obj in enumerate(objs):
            numbers.setdefault(_get_version(obj, group), []).append(number)
        for source, chosen in numbers.items():
            for handler in routes.find(source, target):
                converted = await self._call(handler, [objs[number] for number in chosen])
                for number, obj in zip(chosen, converted, strict=True):
                    objs[number] = obj
        try:
            return [codec.Raw(codec.encode(obj)) for obj in objs]
        except (TypeError, ValueError) as e:
            raise ConversionError(f"A converted object of {routes.definition} has no JSON form: {e}") from None

    async def _call(self, handler: ConversionHandler, objs: Sequence[Obj]) -> Sequence[Obj]:
        if handler.is_async:
            return [await converting.convert_async(handler, obj) for obj in objs]
        converted: Sequence[Obj] = await self._runtime.executor.threads.call(
            handler.id, lambda: [converting.convert(handler, obj) for obj in objs], is_long=True
        )
        return converted


def _get_version(obj: Obj, group: str) -> str:
    its_group, _, version = str(obj.get("apiVersion")).rpartition("/")
    if its_group != group or not obj.get("kind") or not isinstance(obj.get("metadata"), dict):
        raise MalformedReviewError(
            f"The objects of the review must be of the group {group!r}, with metadata and kinds."
        )
    return version
