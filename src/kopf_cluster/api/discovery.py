"""
Discovery: which groups, versions, and resources there are, in the legacy and in the aggregated form.

See "Discovery API" of the Kubernetes documentation. The aggregated form is what current clients ask for first.
"""
from __future__ import annotations

import base64
import functools
import hashlib
from typing import Any, Final

from .. import codec
from ..http.requests import Answer, Request
from ..kinds.kind import Kind, Obj
from ..kinds.registry import CORE_VERSION, Registry
from ..kinds.resources import Subresource

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_CORE: Final = ""


def choose_aggregated(accept: str) -> str | None:
    """Tell in which version the aggregated form is wanted, if it is wanted at all."""
    for item in accept.split(","):
        media, *params = (part.strip() for part in item.split(";"))
        options = dict(param.partition("=")[::2] for param in params)
        if media == "application/json" and options.get("as") == "APIGroupDiscoveryList":
            version = options.get("v", "")
            if options.get("g") == "apidiscovery.k8s.io" and version in ("v2", "v2beta1"):
                return version
        elif media in ("application/json", "*/*"):
            return None
    return None


class Discovery:
    """Answers to the questions about what is served."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def answer(self, request: Request, address: str) -> Answer | None:
        """Answer if the path is one of the discovery."""
        match request.path:
            case ("api",):
                return self._core(request, address)
            case ("apis",):
                return self._groups(request)
            case ("apis", group) if group and self._registry.versions(group):
                return _json(self._group(group))
            case ("api", version) if self._registry.kinds(_CORE, version):
                return _json(self._resources(_CORE, version))
            case ("apis", group, version) if group and self._registry.kinds(group, version):
                return _json(self._resources(group, version))
        return None

    def _core(self, request: Request, address: str) -> Answer:
        if aggregated := choose_aggregated(request.accept):
            return self._aggregate([_CORE], aggregated)
        return _json({"kind": "APIVersions", "versions": [CORE_VERSION],
                      "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]})

    def _groups(self, request: Request) -> Answer:
        names = [group for group in self._registry.groups() if group != _CORE]
        if aggregated := choose_aggregated(request.accept):
            return self._aggregate(names, aggregated)
        groups = [{key: value for key, value in self._group(name).items() if key not in ("kind", "apiVersion")}
                  for name in names]
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def _group(self, group: str) -> Obj:
        versions = [{"groupVersion": f"{group}/{version}", "version": version}
                    for version in self._registry.versions(group)]
        return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": versions,
                "preferredVersion": versions[0]}

    def _resources(self, group: str, version: str) -> Obj:
        resources: list[Obj] = []
        for kind in self._registry.kinds(group, version):
            main: Obj = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
                         "kind": kind.kind, "verbs": list(kind.verbs)}
            main = _with_names(main, kind)
            if kind.is_stored and "create" in kind.verbs:
                main["storageVersionHash"] = _hash_storage_version(kind)
            resources.append(main)
            resources.extend(_list_subresource(kind, name, subresource)
                             for name, subresource in kind.listed_subresources.items())
        group_version = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
                "resources": resources}

    def _aggregate(self, groups: list[str], version: str) -> Answer:
        items = [{"metadata": {"name": group, "creationTimestamp": None},
                  "versions": [self._aggregate_version(group, name) for name in self._registry.versions(group)]}
                 for group in groups]
        document = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}",
                    "metadata": {}, "items": items}
        return Answer(200, codec.encode(document), _AGGREGATED.format(version=version))

    def _aggregate_version(self, group: str, version: str) -> Obj:
        return {"version": version, "freshness": "Current",
                "resources": [_aggregate_kind(kind) for kind in self._registry.kinds(group, version)]}


def _hash_storage_version(kind: Kind) -> str:
    """Give what changes if the objects begin to be stored in another version."""
    group, _, version = kind.storage_version.rpartition("/")
    group = "" if group == "core" else group or kind.group
    return _hash(f"{group}/{version or kind.version}/{kind.kind}")


@functools.cache
def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _list_subresource(kind: Kind, name: str, subresource: Subresource) -> Obj:
    """The group and the version are told only if they are not those of the whole list."""
    is_own = (subresource.group, subresource.version) == (kind.group, kind.version)
    origin = {} if is_own else {"group": subresource.group, "version": subresource.version}
    return {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced, **origin,
            "kind": subresource.kind, "verbs": list(subresource.verbs)}


def _aggregate_kind(kind: Kind) -> Obj:
    response = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    main: Obj = {"resource": kind.plural, "responseKind": response,
                 "scope": "Namespaced" if kind.namespaced else "Cluster",
                 "singularResource": kind.singular, "verbs": list(kind.verbs)}
    subresources = [{"subresource": name, "verbs": list(subresource.verbs), "responseKind": {
        "group": subresource.group, "version": subresource.version, "kind": subresource.kind,
    }} for name, subresource in kind.listed_subresources.items()]
    return _with_names({**main, "subresources": subresources} if subresources else main, kind)


def _with_names(resource: Obj, kind: Kind) -> Obj:
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    return resource


def _json(document: Any) -> Answer:
    return Answer(200, codec.encode(document))
