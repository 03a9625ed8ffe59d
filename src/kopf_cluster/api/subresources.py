"""
Subresources of pods that clients create: bindings to nodes, evictions; and the subresource ``scale``.

See "API-initiated Eviction" of the Kubernetes documentation, and the API reference of `Binding` and `Eviction`.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, Final

from kopf_cluster import ages, codec, patches, statuses
from kopf_cluster.api.bodies import convert_delete_options, decode_patch, read_object, write_options
from kopf_cluster.kinds import objects, scales, selectors
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.kinds.resources import Subresource
from kopf_cluster.kinds.scales import SCALE, ScalePaths
from kopf_cluster.requests import Answer, Call, Request
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Key, Record
from kopf_cluster.writes.write_options import WriteOptions
from kopf_cluster.writes.writing import Transform, Writer

_BUDGETS: Final = "poddisruptionbudgets.policy"
_VIOLATED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_UNPROTECTED: Final = frozenset({"Pending", "Succeeded", "Failed"})


_BINDING: Final = statuses.Naming(kind="Binding", plural="pods/binding")


class Pods:
    """Binds pods to nodes, and evicts them."""

    def __init__(self, store: Store, registry: Registry, writer: Writer) -> None:
        self._store = store
        self._registry = registry
        self._writer = writer

    def bind(self, kind: Kind, key: Key, binding: Obj, options: WriteOptions) -> Answer:
        """Assign the pod to a node."""
        target: Any = binding.get("target")
        node = target.get("name") if isinstance(target, dict) else None
        if not node or target.get("kind") not in (None, "", "Node"):
            raise statuses.invalid(
                _BINDING,
                key[1],
                [
                    statuses.required("target.name")
                    if not node
                    else statuses.unsupported_value("target.kind", target["kind"], ("Node", "<empty>"))
                ],
            )

        def assign(old: Obj) -> Obj:
            known = (old.get("spec") or {}).get("nodeName")
            if known or "deletionTimestamp" in old["metadata"]:
                raise statuses.conflict(
                    _BINDING,
                    key[1],
                    (
                        f'pod {key[1]} is already assigned to node "{known}"'
                        if known
                        else f"pod {key[1]} is being deleted, cannot be assigned to a host"
                    ),
                )
            status = old.get("status") or {}
            conditions = [item for item in status.get("conditions") or () if item.get("type") != "PodScheduled"]
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ages.now()}
            return {
                **old,
                "spec": {**old["spec"], "nodeName": node},
                "status": {**status, "conditions": [*conditions, scheduled]},
            }

        self._writer.update(kind, key, assign, subresource="binding", options=options)
        return _success(201)

    def evict(self, kind: Kind, key: Key, eviction: Obj, options: WriteOptions) -> Answer:
        """Delete the pod if its budget allows that; otherwise, refuse it for now (429)."""
        how = convert_delete_options(eviction.get("deleteOptions") or {})
        if options.dry_run:
            how.dryRun = ["All"]
        pod = objects.open_record(kind, self._writer.need(kind, key))
        budgets = list(self._find_budgets(pod))
        if len(budgets) > 1:
            raise statuses.internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        if budgets:
            self._spend(*budgets[0], pod, dry_run=bool(how.dryRun))
        self._writer.delete(kind, key, how)
        return _success(201)

    def _find_budgets(self, pod: Obj) -> Iterator[tuple[Kind, Obj]]:
        kind = self._registry.find("policy", "v1", "poddisruptionbudgets")
        if (
            kind is None
            or (pod.get("status") or {}).get("phase") in _UNPROTECTED
            or "deletionTimestamp" in pod["metadata"]
        ):
            return
        labels = pod["metadata"].get("labels") or {}
        for record in self._store.bucket(_BUDGETS).select(pod["metadata"]["namespace"]):
            budget = objects.open_record(kind, record)
            selector = (budget.get("spec") or {}).get("selector")
            if selector is not None and selectors.matches(selector, labels):
                yield kind, budget

    def _spend(self, kind: Kind, budget: Obj, pod: Obj, *, dry_run: bool) -> None:
        name, status = budget["metadata"]["name"], budget.get("status") or {}
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
            raise _refuse(f"The disruption budget {name} is still being processed by the server.")
        allowed = status.get("disruptionsAllowed", 0)
        if allowed < 1:
            raise _refuse(
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                f"{status.get('currentHealthy', 0)} currently"
            )
        disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: ages.now()}
        spent = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
        self._writer.update(
            kind,
            objects.key_of(budget["metadata"]),
            lambda old: {**old, "status": spent},
            subresource="status",
            options=WriteOptions(dry_run=dry_run),
        )


def _refuse(why: str) -> statuses.APIStatus:
    causes = [{"reason": "DisruptionBudget", "message": why}]
    return statuses.APIStatus(429, "TooManyRequests", _VIOLATED, details={"causes": causes})


def _success(code: int) -> Answer:
    return Answer(
        code, codec.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
    )


# Connections to containers and proxies: the options of the request are read for webhooks.
#
# The server refuses all connections, as there is nothing to connect to.

CONNECTIONS: Final = frozenset({"attach", "exec", "portforward", "proxy"})
"""The subresources that are connections; and, below, all subresources that need a kubelet."""
OF_KUBELETS: Final = CONNECTIONS | {"log"}

_FLAGS: Final = frozenset({"stdin", "stdout", "stderr", "tty"})
_TEXTS: Final = frozenset({"container", "path"})


def read_options(subresource: Subresource, rest: str, request: Request) -> Obj:
    """Make the object of the options in the query; for a proxy, it contains the rest of the path."""
    options: dict[str, Any] = {"kind": subresource.kind, "apiVersion": subresource.version}
    for name, value in urllib.parse.parse_qsl(request.raw_query):
        if name in _FLAGS:
            options[name] = request.flag(name)
        elif name in _TEXTS:
            options[name] = value
        elif name == "command":
            options.setdefault(name, []).append(value)
        elif name == "ports":
            options.setdefault(name, []).append(_read_port(value))
    return options | ({"path": f"/{rest}"} if rest else {})


def _read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


# The subresource ``scale``: the actual and the desired number of replicas, for any kind.
#
# See "Subresources" of the API conventions, and "Scale subresource" of custom resource definitions.

# There are no lists in scales, so the strategic patches are the same as the merging ones.
_PATCHES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    patches.JSON: patches.json_patch,
    patches.MERGE: patches.merge_patch,
    patches.STRATEGIC: patches.merge_patch,
}


def answer_scale(writer: Writer, kind: Kind, paths: ScalePaths, call: Call, request: Request) -> Answer:
    """Read or write the scale of an object."""
    key = (call.namespace or "", call.name or "")
    if call.verb == "get":
        return _show(kind, paths, writer.need(kind, key))
    options = write_options(request)
    if call.verb == "update":
        scale = read_object(SCALE, request, implied=not kind.custom)
        objects.require_same_name(scale, key[1])
        return _write(writer, kind, paths, key, lambda old: scale, options)
    if request.content_type == patches.APPLY:
        raise statuses.not_implemented(f"applying to the subresource {kind.plural}/scale on the server side")
    if request.content_type not in _PATCHES:
        raise statuses.unsupported_media(_PATCHES)
    function, patch = _PATCHES[request.content_type], decode_patch(request)
    return _write(writer, kind, paths, key, lambda old: function(old, patch), options)


def _write(
    writer: Writer, kind: Kind, paths: ScalePaths, key: Key, transform: Transform, options: WriteOptions
) -> Answer:
    def change(old: Obj) -> Obj:
        return scales.take(transform(scales.show(old, paths, default=0)), old, paths)

    return _show(kind, paths, writer.update(kind, key, change, subresource="scale", options=options))


def _show(kind: Kind, paths: ScalePaths, record: Record) -> Answer:
    return Answer(200, codec.encode(scales.show(objects.open_record(kind, record), paths)))
