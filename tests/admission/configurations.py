"""The webhook configurations in the cluster, and a tunnel of the user's own that tells the operator where it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import kopf
from tests.behaviour.objects import API, MERGE_PATCH, Obj, Refused, get_patience

NAME = "auto.kopf.dev"
URL: kopf.WebhookClientConfig = {"url": "https://127.0.0.1:1/root", "caBundle": "YWJj"}
OWNER = "kopf.dev/webhooks-owner"
VALIDATING, MUTATING = "validating", "mutating"


class Tunnel:
    """It brings nothing, but can be told to change the address, or to break."""

    def __init__(self, *client_configs: kopf.WebhookClientConfig) -> None:
        self._queue: asyncio.Queue[kopf.WebhookClientConfig | Exception | None] = asyncio.Queue()
        for client_config in client_configs or (URL,):
            self._queue.put_nowait(client_config)
        self.is_closed = False

    def send(self, item: kopf.WebhookClientConfig | Exception | None) -> None:
        """Change the address, or raise the error, or exit."""
        self._queue.put_nowait(item)

    def configure(self, settings: kopf.OperatorSettings) -> None:
        settings.admission.server = self
        settings.admission.managed = NAME

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.is_closed = True


class Configurations:
    """The managed configurations as they are in the cluster."""

    def __init__(self, api: API) -> None:
        self._api = api

    def _get_path(self, type: str) -> str:
        return f"/apis/admissionregistration.k8s.io/v1/{type}webhookconfigurations"

    async def get(self, type: str = VALIDATING) -> Obj | None:
        """Read the configuration, if it exists."""
        try:
            return await self._api.request("GET", f"{self._get_path(type)}/{NAME}")  # type: ignore[no-any-return]
        except Refused as e:
            if e.status == 404:
                return None
            raise

    async def get_webhooks(self, type: str = VALIDATING) -> list[Obj]:
        return list((await self.get(type) or {}).get("webhooks") or [])

    async def wait(self, condition: Callable[[Obj | None], object], type: str = VALIDATING) -> Obj | None:
        """Wait until the configuration is so."""
        try:
            async with asyncio.timeout(max(get_patience(), 50)):
                while not condition(obj := await self.get(type)):
                    await asyncio.sleep(0.1)
                return obj
        except TimeoutError:
            raise AssertionError(f"It never came so with the {type} configuration: {obj!r}") from None

    async def wait_webhooks(self, *names: str, type: str = VALIDATING) -> list[Obj]:
        """Wait until there are exactly these webhooks, named without the common suffix."""
        expected = [f"{name}.{NAME}" for name in names]
        obj = await self.wait(
            lambda obj: obj and [webhook["name"] for webhook in obj.get("webhooks") or []] == expected, type
        )
        assert obj is not None
        return list(obj.get("webhooks") or [])

    async def create(self, type: str = VALIDATING, *, webhooks: list[Obj] | None = None, **metadata: Any) -> Obj:
        kind = f"{type.title()}WebhookConfiguration"
        obj = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": NAME, **metadata},
            "webhooks": webhooks or [],
        }
        return await self._api.request("POST", self._get_path(type), obj)  # type: ignore[no-any-return]

    async def merge(self, patch: Obj, type: str = VALIDATING) -> Obj:
        path = f"{self._get_path(type)}/{NAME}"
        return await self._api.request("PATCH", path, patch, MERGE_PATCH)  # type: ignore[no-any-return]

    async def delete(self, type: str = VALIDATING) -> None:
        with contextlib.suppress(Refused):
            await self._api.request("DELETE", f"{self._get_path(type)}/{NAME}")

    async def wait_writes(self, number: int, type: str = VALIDATING) -> None:
        """Wait until the configuration was written so many times."""
        async with asyncio.timeout(max(get_patience(), 50)):
            while self.count_writes(type) < number:
                await asyncio.sleep(0.1)

    def count_writes(self, type: str = VALIDATING) -> int:
        """How many times the configuration was written."""
        resource = f"{type}webhookconfigurations"
        counters = self._api.cluster.counters
        return sum(
            n
            for (verb, name, code), n in counters.items()
            if name == resource and verb in ("patch", "create", "update") and code < 300
        )
