"""Needs: what the code of an operator does in the cluster by its own clients, as its authors declare it."""

from __future__ import annotations

from collections.abc import Collection

from kopf._handlers.handlers import Need
from kopf._handlers.registry import OperatorRegistry, get_default_registry
from kopf._values.selectors import Selector


def needs(
    *resource: str,
    verbs: Collection[str],
    names: Collection[str] = (),
    namespace: str | None = None,
    registry: OperatorRegistry | None = None,
) -> None:
    """
    Declare what the operator does by other means than its handlers: with a client library, or by ``kopf.apply()``.

    It is for ``kopf rbac``, ``kopf manifests``, and the check of the permissions at the start.

    :param resource: as in the decorators: ``"secrets"``, ``"deployments.apps"``, ``"apps", "deployments"``; with a
        subresource: ``"pods/log"``.
    :param verbs: those of RBAC: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, etc.
    :param names: only of the objects with these names; of all by default. Creation cannot be restricted so.
    :param namespace: in this namespace; by default, in those that the operator serves.
    :raises TypeError: if the resource or the verbs make no sense.
    """
    if isinstance(verbs, str) or not verbs or not all(verbs):
        raise TypeError(f"verbs= must be a list of verbs, e.g. ['get', 'create'], got {verbs!r}.")
    if isinstance(names, str) or not resource:
        raise TypeError(f"kopf.needs() is for a resource, and names= is a list, got {resource!r} and {names!r}.")
    *api, name = resource
    name, _, subresource = name.partition("/")
    need = Need(
        selector=Selector(*[*api, name]),
        subresource=subresource or None,
        verbs=tuple(verbs),
        names=tuple(names),
        namespace=namespace,
    )
    (registry if registry is not None else get_default_registry()).needs.append(need)
