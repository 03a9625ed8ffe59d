"""
An operator of sites, each with a page (a ConfigMap) and a record in an external DNS; right, or with a classic bug.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import kopf
from kopf._testing.simulated_process import current_process

Bug = Literal[
    "create-then-record",
    "stale view",
    "losing a child",
    "missing finalizer",
    "forgetting a field",
    "endless retry",
]

PAGES: Final = "/api/v1/namespaces/default/configmaps"
CRD: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sites.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "sites", "singular": "site", "kind": "Site"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1, "maximum": 10},
                                    "theme": {"type": "string", "enum": ["light", "dark"]},
                                    "motd": {"type": "string", "maxLength": 20},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
SITE: Final[dict[str, Any]] = {
    "apiVersion": "example.com/v1",
    "kind": "Site",
    "metadata": {"name": "one"},
    "spec": {"size": 1, "motd": "hello"},
}

dns: Final[dict[str, int]] = {}
"""The external API: what there is, outlives the operators."""


class Refusal(Exception):
    """The API has refused a request."""

    def __init__(self, status: int) -> None:
        super().__init__(f"refused: {status}")
        self.status = status


async def ask(method: str, path: str, body: Any = None) -> Any:
    process = current_process.get()
    assert process is not None
    headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
    async with (
        process.make_session() as session,
        session.request(method, process.url + path, json=body, headers=headers) as response,
    ):
        if response.status >= 400:
            raise Refusal(response.status)
        return await response.json()


def make_page(spec: Any, name: str) -> dict[str, Any]:
    page = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-page"},
        "data": {key: str(value) for key, value in spec.items()},
    }
    kopf.adopt(page)
    return page


async def put_page(spec: Any, name: str) -> None:
    """Create the page or make it as it must be, whatever has happened before."""
    page = make_page(spec, name)
    try:
        await ask("POST", PAGES, page)
    except Refusal as e:
        if e.status != 409:
            raise
        data = {"size": None, "theme": None, "motd": None, **page["data"]}
        await ask("PATCH", f"{PAGES}/{name}-page", {"data": data})


def make_operator(bug: Bug | None = None) -> kopf.OperatorRegistry:
    """Declare the handlers, right or with one of the bugs."""
    registry = kopf.OperatorRegistry()
    _declare_dns(registry, has_finalizer=bug != "missing finalizer")
    match bug:
        case None | "missing finalizer":
            _declare_right(registry)
        case "create-then-record":
            _declare_creating_then_recording(registry)
        case "stale view":
            _declare_looking_at_index(registry)
        case "losing a child":
            _declare_remembering(registry)
        case "forgetting a field":
            _declare_forgetting(registry)
        case "endless retry":
            _declare_retrying(registry)
    return registry


def _declare_dns(registry: kopf.OperatorRegistry, *, has_finalizer: bool) -> None:
    @kopf.on.create("sites", registry=registry)
    @kopf.on.update("sites", registry=registry)
    @kopf.on.resume("sites", registry=registry)
    async def publish(name: str, spec: kopf.Spec, **_: Any) -> None:
        dns[name] = spec["size"]

    @kopf.on.delete("sites", registry=registry, optional=not has_finalizer)
    async def unpublish(name: str, **_: Any) -> None:
        dns.pop(name, None)


def _declare_right(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("sites", registry=registry)
    @kopf.on.update("sites", registry=registry)
    @kopf.on.resume("sites", registry=registry)
    async def build(name: str, spec: kopf.Spec, **_: Any) -> None:
        await put_page(spec, name)


def _declare_creating_then_recording(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("sites", registry=registry)
    async def build(name: str, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        page = make_page(spec, name)
        page["metadata"] = {**page["metadata"], "name": None, "generateName": f"{name}-"}
        created = await ask("POST", PAGES, page)
        patch.status["page"] = created["metadata"]["name"]

    @kopf.on.update("sites", registry=registry)
    async def rebuild(name: str, spec: kopf.Spec, status: kopf.Status, **_: Any) -> None:
        await ask("PATCH", f"{PAGES}/{status['page']}", {"data": make_page(spec, name)["data"]})


def _declare_looking_at_index(registry: kopf.OperatorRegistry) -> None:
    @kopf.index("configmaps", registry=registry)
    async def pages(name: str, meta: kopf.Meta, **_: Any) -> dict[str, str]:
        return {owner["name"]: name for owner in meta.get("ownerReferences", ())}

    @kopf.on.create("sites", registry=registry)
    @kopf.on.update("sites", registry=registry)
    @kopf.on.resume("sites", registry=registry)
    async def build(name: str, spec: kopf.Spec, pages: kopf.Index[str, str], **_: Any) -> None:
        page = make_page(spec, name)
        if name in pages:
            for page_name in pages[name]:
                await ask("PATCH", f"{PAGES}/{page_name}", {"data": page["data"]})
        else:
            page["metadata"] = {**page["metadata"], "name": None, "generateName": f"{name}-"}
            await ask("POST", PAGES, page)


def _declare_remembering(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("sites", registry=registry)
    async def build(name: str, spec: kopf.Spec, memo: kopf.Memo, **_: Any) -> None:
        await put_page(spec, name)
        memo.page = f"{name}-page"

    @kopf.on.update("sites", registry=registry)
    async def rebuild(name: str, spec: kopf.Spec, memo: kopf.Memo, **_: Any) -> None:
        if "page" in memo:
            await put_page(spec, name)


def _declare_forgetting(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("sites", registry=registry)
    @kopf.on.update("sites", registry=registry)
    @kopf.on.resume("sites", registry=registry)
    async def build(name: str, spec: kopf.Spec, **_: Any) -> None:
        page = make_page(spec, name)
        try:
            await ask("POST", PAGES, page)
        except Refusal as e:
            if e.status != 409:
                raise
            await ask("PATCH", f"{PAGES}/{name}-page", {"data": page["data"]})  # what is absent, remains there


def _declare_retrying(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("sites", registry=registry)
    async def build(name: str, spec: kopf.Spec, **_: Any) -> None:
        try:
            await ask("POST", PAGES, make_page(spec, name))
        except Refusal as e:
            raise kopf.TemporaryError("The page cannot be created.", delay=30) from e

    @kopf.on.update("sites", registry=registry)
    async def rebuild(name: str, spec: kopf.Spec, **_: Any) -> None:
        await put_page(spec, name)
