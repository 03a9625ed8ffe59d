"""Short ways to make objects and the facts of them, with handlers as users declare them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import kopf
from kopf._handlers.handlers import ResourceHandler
from kopf._insight.explaining.assembly import explain
from kopf._insight.explaining.dry_run import Facts
from kopf._insight.explaining.explanation import Explanation, HandlerInfo
from kopf._settings.settings import OperatorSettings
from kopf._storage.snapshots import Snapshots
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource

NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)


def make_object(content: Mapping[str, Any], *, old: Mapping[str, Any] | None = None) -> KubeObject:
    """Make an object; with ``old``, as if it was handled in that state."""
    head = {"name": "obj", "namespace": "default", "uid": "uid1", "resourceVersion": "1"}
    full = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", **content}
    full["metadata"] = {**head, **content.get("metadata", {})}
    if old is not None:
        patch = Patch()
        previous = make_object(old)
        snapshots = make_snapshots(OperatorSettings(), ())
        snapshots.store(snapshots.take(previous), body=Body(previous), patch=patch)
        annotations = {**full["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
        full["metadata"]["annotations"] = annotations
    return KubeObject.from_dict(full)


def make_snapshots(settings: OperatorSettings, extra_fields: tuple[tuple[str, ...], ...]) -> Snapshots:
    persistence = settings.persistence
    return Snapshots(persistence.diffbase_storage, persistence.progress_storage, extra_fields)


def declare(decorator: Any, fn: Any = None, **options: Any) -> list[ResourceHandler]:
    """Declare a function."""

    async def handler_fn(**_: Any) -> None: ...

    registry = kopf.OperatorRegistry()
    decorator("kopfexamples", id="fn", registry=registry, **options)(handler_fn if fn is None else fn)
    return [*registry.resources, *registry.webhooks]


def make_facts(obj: KubeObject, handlers: list[ResourceHandler] | None = None, **fields: Any) -> Facts:
    """Make the facts that are known without an operator."""
    settings = fields.pop("settings", None) or OperatorSettings()
    defaults: dict[str, Any] = {
        "now": NOW,
        "resource": RESOURCE,
        "obj": obj,
        "handlers": handlers,
        "settings": settings,
        "snapshots": make_snapshots(settings, ()),
    }
    return Facts(**{**defaults, **fields})


def ask(obj: KubeObject, handlers: list[ResourceHandler] | None = None, **fields: Any) -> Explanation:
    return explain(make_facts(obj, handlers, **fields))


def ask_about(obj: KubeObject, decorator: Any, fn: Any = None, **options: Any) -> HandlerInfo:
    """Explain one handler."""
    [info] = ask(obj, declare(decorator, fn, **options))["handlers"]
    return info
