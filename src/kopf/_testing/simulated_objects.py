"""
The objects of a simulation, for its users.
"""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import kopf_cluster
from kopf._testing.simulation_core import SimulationCore
from kopf._values.diffs import diff
from kopf._virtual_time.patience import SimulationError
from kopf_cluster.clients.client import AsyncClient

Obj: TypeAlias = dict[str, Any]
Objs: TypeAlias = list[Obj]
Manifests: TypeAlias = Mapping[str, Any] | str | pathlib.Path


class SimulatedObjects(SimulationCore):
    """
    The actions of users on the objects of the cluster; by default, of the administrator.

    Kinds are named as for ``kubectl``, by any of their names. The methods raise :class:`APIStatus` for refusals.
    """

    def _client(self, user: str | None) -> AsyncClient:
        return self.cluster.aio if user is None else self.cluster.as_user(user).aio

    async def apply(self, manifests: Manifests, *, as_user: str | None = None) -> Obj:
        """
        Create the object, or merge the manifest into the existing one; return the object, or the last one of several.

        Manifests are dicts, texts in YAML, or paths of YAML files.
        """
        objects = await self.wait(self._client(as_user).apply(manifests))
        if not objects:
            raise SimulationError("The manifests contain no objects to apply.")
        return objects[-1]

    async def get(self, kind: str, name: str, *, namespace: str = "default", as_user: str | None = None) -> Obj:
        """Return the object. Raises :class:`APIStatus` if it does not exist."""
        return await self.wait(self._client(as_user).get(kind, name, namespace=namespace))

    async def find(self, kind: str, name: str, *, namespace: str = "default") -> Obj | None:
        """Return the object, or ``None`` if it does not exist."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except kopf_cluster.APIStatus as e:
            if e.code != 404:
                raise
            return None

    async def list(
        self, kind: str, *, namespace: str | None = None, labels: str = "", fields: str = "", as_user: str | None = None
    ) -> Objs:
        """Return the objects of a namespace; of all namespaces by default."""
        return await self.wait(self._client(as_user).list(kind, namespace=namespace, labels=labels, fields=fields))

    async def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "default",
        subresource: str = "",
        as_user: str | None = None,
    ) -> Obj:
        """Change the object by a merge-patch (a dict) or a JSON-patch (a list)."""
        return await self.wait(
            self._client(as_user).patch(kind, name, patch, namespace=namespace, subresource=subresource)
        )

    async def edit(
        self,
        kind: str,
        name: str,
        change: Callable[[Obj], object],
        *,
        namespace: str = "default",
        as_user: str | None = None,
    ) -> Obj:
        """Change the object by a function that modifies the dict in place, as ``kubectl edit`` does."""
        before = await self.get(kind, name, namespace=namespace, as_user=as_user)
        after = copy.deepcopy(before)
        result = change(after)
        if after == before and isinstance(result, Mapping) and result is not after and "metadata" in result:
            raise SimulationError("The function has made another object: it must change the given one.")
        return await self.patch(kind, name, make_merge_patch(before, after), namespace=namespace, as_user=as_user)

    async def delete(self, kind: str, name: str, *, namespace: str = "default", as_user: str | None = None) -> None:
        """Request the deletion of the object; it remains while it has finalizers."""
        await self.wait(self._client(as_user).delete(kind, name, namespace=namespace))

    async def events(self, obj: Mapping[str, Any] | str | None = None) -> Objs:
        """Return the Kubernetes events about the object (or its name), or about all objects; the latest last."""
        name = obj.get("metadata", {}).get("name") if isinstance(obj, Mapping) else obj
        found = sorted(await self.list("events"), key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event for event in found if name in (None, event["involvedObject"].get("name"))]


def make_merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Make the patch of the differences; ``None`` removes a field (RFC 7396)."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if changes := make_merge_patch(old, value):
                patch[key] = changes
        elif key not in before or diff(old, value):
            patch[key] = value
    return patch
