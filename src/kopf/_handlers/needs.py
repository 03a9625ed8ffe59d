"""Needs: the permissions for an operator's own requests, as its authors declare them."""

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
    Declare permissions for requests that the operator makes with a client library, or by ``kopf.apply()``.

    ``kopf rbac``, ``kopf manifests``, and the check of permissions at the start use these declarations.

    :param resource: the resource, as in the decorators: ``"secrets"``, ``"deployments.apps"``, ``"apps",
        "deployments"``; or a subresource: ``"pods/log"``.
    :param verbs: the verbs of RBAC: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, etc.
    :param names: the names of the objects; by default, all objects. RBAC cannot restrict creations by names.
    :param namespace: the namespace; by default, all namespaces that the operator serves.
    :param registry: the registry for the declaration; by default, :func:`kopf.get_default_registry`.
    :raises TypeError: if the resource, the verbs, or the names are of a wrong form.
    """
    if isinstance(verbs, str) or not verbs or not all(verbs):
        raise TypeError(f"verbs= must be a list of verbs, e.g. ['get', 'create'], got {verbs!r}.")
    if isinstance(names, str) or not resource:
        raise TypeError(f"kopf.needs() takes a resource, and names= as a list, got {resource!r} and {names!r}.")
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
