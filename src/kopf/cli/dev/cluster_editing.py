"""
The editing of the local cluster in the page: objects, faults, and the time; only under ``kopf dev``.

The requests are made in the event loop of the console, so that they work even when the operator is blocked.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import yaml
from aiohttp import web

from kopf._client.auth.kubeconfig import make_connection_info, read_kubeconfigs
from kopf._client.auth.vault import Vault
from kopf._client.errors import APIError, APINetworkError
from kopf._client.http.api import APIClient
from kopf._insight.console.texts import cut
from kopf._insight.endpoint.console_server import AnswerError, Route, Routes
from kopf._insight.explaining.redacted_texts import is_secret
from kopf._packaging.formats import Dumper
from kopf._settings.settings import OperatorSettings
from kopf._values import codec
from kopf._values.resources import Resource
from kopf.cli.dev.leaping import LeapingLoop

AGENT = "kopf-console"
"""The user agent of the console, so that faults do not affect its requests."""

MAX_LEAP = 366 * 86400.0
"""The limit of one leap in time, in seconds."""
_is_name = re.compile(r"(?!\.{1,2}\Z)[^/?#%\s\\]+").fullmatch
_POST = frozenset({"POST"})
_MAX_BODY = 3 * 2**20
_READING_TIMEOUT = 10.0
_ACTIONS = {
    "cut": "/_kopf/watches/cut",
    "expire": "/_kopf/token/expire",
    "compact": "/_kopf/compact",
}


class ClusterEditing:
    """Reads, writes, and deletes objects as the administrator of the cluster; makes and ends faults; moves the time."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the operator."""

    @property
    def ahead(self) -> float | None:
        """How far the time of the operator has leapt, in seconds; ``None`` if it cannot."""
        return self._loop.ahead if isinstance(self._loop, LeapingLoop) else None

    def add_to(self, routes: Routes) -> None:
        """Answer the requests of the page. It is called in the event loop of the operator."""
        self._loop = asyncio.get_running_loop()
        for name, act in {
            "get": self._get,
            "apply": self._apply,
            "delete": self._delete,
            "faults": self._set_faults,
            "leap": self._leap,
        }.items():
            routes[f"/api/console/dev/{name}"] = Route(functools.partial(_answer, act), _POST)

    async def _get(self, content: Mapping[str, Any]) -> object:
        resource, namespace, name = _read_address(content)
        if is_secret(resource):
            raise AnswerError("Secrets are not shown. To replace one, apply a whole new manifest.")
        obj = codec.decode(await self._request("GET", resource.get_url(namespace=namespace, name=name)))
        if obj.get("kind") == "Secret" or "items" in obj:
            raise AnswerError("This object cannot be shown.")
        obj.get("metadata", {}).pop("managedFields", None)
        return {"manifest": yaml.dump(obj, Dumper=Dumper, sort_keys=False, allow_unicode=True)}

    async def _apply(self, content: Mapping[str, Any]) -> object:
        """Create or replace the objects; those with a version, only if it is the current one."""
        try:
            manifests = [item for item in yaml.safe_load_all(str(content.get("manifest", ""))) if item]
        except yaml.YAMLError as e:
            raise AnswerError(f"The manifest is not valid YAML: {e}") from e
        return {"done": [await self._apply_one(manifest) for manifest in manifests]}

    async def _apply_one(self, manifest: Any) -> str:
        metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise AnswerError("Every manifest must have apiVersion, kind, and metadata.name.")
        resource = await self._find_resource(str(manifest.get("apiVersion", "")), str(manifest.get("kind", "")))
        namespace = str(metadata.get("namespace") or "default") if resource.namespaced else None
        name = str(metadata["name"])
        url = resource.get_url(namespace=namespace, name=name)
        if not metadata.get("resourceVersion"):
            try:
                current = codec.decode(await self._request("GET", url))
            except APIError as e:
                if e.status != 404:
                    raise
                await self._request("POST", resource.get_url(namespace=namespace), manifest)
                return f"{resource.plural}/{name} is created"
            metadata["resourceVersion"] = current["metadata"]["resourceVersion"]
        await self._request("PUT", url, manifest)
        return f"{resource.plural}/{name} is replaced"

    async def _delete(self, content: Mapping[str, Any]) -> object:
        resource, namespace, name = _read_address(content)
        await self._request("DELETE", resource.get_url(namespace=namespace, name=name))
        return {"done": [f"{resource.plural}/{name} is being deleted"]}

    async def _set_faults(self, content: Mapping[str, Any]) -> object:
        """Make a fault, or end all faults. Return the current ones."""
        settings, action = content.get("settings"), content.get("action")
        if action == "clear":
            await self._request("DELETE", "/_kopf/faults")
        elif action in _ACTIONS:
            await self._request("POST", _ACTIONS[action])
        elif isinstance(settings, dict):
            for rule in settings.get("rules") or ():
                rule.setdefault("agent", "^kopf/")
            await self._request("PUT", "/_kopf/faults", settings)
        return codec.decode(await self._request("GET", "/_kopf/faults"))

    async def _leap(self, content: Mapping[str, Any]) -> object:
        """Move the time forward, of the operator and of the cluster."""
        seconds, loop = content.get("seconds"), self._loop
        if not isinstance(seconds, int | float) or not 0 < seconds <= MAX_LEAP:
            raise AnswerError("Time only moves forward, by 366 days at most.")
        if not isinstance(loop, LeapingLoop):
            raise AnswerError("The event loop of the operator cannot leap in time.")
        try:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_move(loop, seconds), loop))
        except ImportError as e:
            raise AnswerError("Leaps in time need a library: pip install time-machine") from e
        await self._request("POST", f"/_kopf/clock?seconds={seconds}")
        return {"now": int(time.time() * 1000)}

    async def _find_resource(self, api_version: str, kind: str) -> Resource:
        group, _, version = api_version.rpartition("/")
        try:
            listing = codec.decode(await self._request("GET", Resource(group, version, "").base_url))
        except APIError as e:
            raise AnswerError(f"There is no such API version: {cut(api_version, 100)}") from e
        for item in listing["resources"]:
            if item["kind"] == kind and "/" not in item["name"]:
                return Resource(group, version, item["name"], kind, namespaced=item["namespaced"])
        raise AnswerError(f"There is no such kind in {cut(api_version, 100)}: {cut(kind, 100)}")

    async def _request(self, method: str, path: str, payload: Any = None) -> bytes:
        # Each request has its own connection, as people make these requests rarely.
        settings = OperatorSettings()
        vault = Vault(settings)
        try:
            vault.populate([make_connection_info(read_kubeconfigs([self._kubeconfig]))])
            client = APIClient(vault, settings)
            return await client.request(method, path, payload, headers={"User-Agent": AGENT}, backoffs=())
        finally:
            await vault.close()


async def _move(loop: LeapingLoop, seconds: float) -> None:
    """Move both clocks in one step, so that no code in the loop sees one without the other."""
    loop.leap_with_process(seconds)


async def _answer(act: Callable[[Mapping[str, Any]], Awaitable[object]], request: web.BaseRequest) -> object:
    """Act on the JSON of the request, and return the JSON of the response; or raise :class:`AnswerError`."""
    try:
        content = codec.decode(await _read_body(request))
        if not isinstance(content, dict):
            raise AnswerError("The request must be a JSON object.")
        return await act(content)
    except APIError as e:
        raise AnswerError(cut(str(e), 2000), status=e.status) from e
    except APINetworkError as e:
        raise AnswerError(cut(str(e), 2000), status=502) from e
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise AnswerError(cut(str(e) or type(e).__name__, 2000)) from e


async def _read_body(request: web.BaseRequest) -> bytes:
    content = bytearray()
    async with asyncio.timeout(_READING_TIMEOUT):
        async for chunk in request.content.iter_any():
            content += chunk
            if len(content) > _MAX_BODY:
                raise AnswerError("The request is too large.")
    return bytes(content)


def _read_address(content: Mapping[str, Any]) -> tuple[Resource, str | None, str]:
    """Read the address of an object from the page. Malformed names are refused: they could lead to other objects."""
    for part in (content["resource"], content.get("namespace") or "default", content["name"]):
        if _is_name(str(part)) is None:
            raise AnswerError(f"This is not a valid name: {cut(str(part), 100)}")
    plural, version, *group = str(content["resource"]).split(".", 2)
    namespace = str(content["namespace"]) if content.get("namespace") else None
    resource = Resource(group[0] if group else "", version, plural, namespaced=namespace is not None)
    return resource, namespace, str(content["name"])
