"""Resources: the kinds of objects that a cluster serves, as its discovery reports them."""

from __future__ import annotations

import dataclasses
import functools
import re
import urllib.parse
from collections.abc import Mapping

_MAX_LIST_URLS = 10_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_proper_name(text: str) -> bool:
    """Tell if it is a valid name of a resource, a group, or a version: these are parts of URLs."""
    return _NAME.fullmatch(text) is not None


@dataclasses.dataclass(frozen=True, repr=False)
class Resource:
    """
    A custom or built-in resource of the cluster.

    The group, the version, and the plural name address the resource, so they are its identity. The other fields are
    for the selectors of handlers, and for information.
    """

    group: str
    """The API group, e.g. ``"kopf.dev"``, ``"apps"``; an empty string for the core API."""
    version: str
    """The API version, e.g. ``"v1"``."""
    plural: str
    """The plural name, as in URLs, e.g. ``"pods"``."""
    kind: str | None = dataclasses.field(default=None, compare=False)
    """The kind as in manifests, e.g. ``"Pod"``."""
    singular: str | None = dataclasses.field(default=None, compare=False)
    """The singular name, e.g. ``"pod"``."""
    shortcuts: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    """The short names, e.g. ``{"po"}``."""
    categories: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    """The categories, e.g. ``{"all"}``."""
    subresources: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    """The subresources, e.g. ``{"status", "scale"}``."""
    namespaced: bool | None = dataclasses.field(default=None, compare=False)
    """Whether the objects are in namespaces."""
    preferred: bool = dataclasses.field(default=True, compare=False)
    """Whether this is the preferred version of its group. Handlers without a version get only preferred versions."""
    verbs: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    """The verbs that the API supports, whether or not RBAC permits them."""

    def __hash__(self) -> int:
        return hash(self.plural)  # fast, as it is a key of many tables; two resources rarely have one name

    def __repr__(self) -> str:
        return f"{self.plural}.{self.version}.{self.group}".rstrip(".")

    @property
    def api_version(self) -> str:
        """The group and the version, as in ``apiVersion`` of the objects, e.g. ``apps/v1`` or ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @functools.cached_property
    def name(self) -> str:
        """The full name, as in ``kubectl``, e.g. ``kopfexamples.kopf.dev`` or ``pods``."""
        return f"{self.plural}.{self.group}".rstrip(".")

    @functools.cached_property
    def _list_urls(self) -> dict[str | None, str]:
        """A cache of the URLs of lists by namespaces: there are few, unlike URLs of objects."""
        return {}

    @property
    def base_url(self) -> str:
        """The common path of all resources of this group and version."""
        group, version = _quote(self.group), _quote(self.version)
        return f"/apis/{group}/{version}" if group else f"/api/{version}"

    def _make_list_url(self, namespace: str | None) -> str:
        scope = "" if namespace is None else f"/namespaces/{_quote(namespace)}"
        if len(self._list_urls) >= _MAX_LIST_URLS:
            self._list_urls.clear()
        url = self._list_urls[namespace] = f"{self.base_url}{scope}/{_quote(self.plural)}"
        return url

    def get_url(
        self,
        *,
        server: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
    ) -> str:
        """
        Build the URL of an object, or of the list of objects.

        :param server: the beginning of the URL; without it, the result is only the path.
        :param namespace: the namespace; without it, and for cluster-scoped resources, the URL is cluster-wide.
        :param name: the name of the object; without it, the URL is of the list.
        :param subresource: the subresource of the object, e.g. ``"status"``.
        :param params: the parameters of the query.
        :raises ValueError: if an object of a namespaced resource has no namespace, or a subresource has no name.
        """
        scope = namespace if self.namespaced else None
        url = self._list_urls.get(scope) or self._make_list_url(scope)
        if name is not None:
            if scope is None and self.namespaced:
                raise ValueError(f"An object of the namespaced {self!r} needs its namespace.")
            url = f"{url}/{_quote(name)}"
        if subresource is not None:
            if name is None:
                raise ValueError(f"A subresource of {self!r} needs the name of an object.")
            url = f"{url}/{_quote(subresource)}"
        if params:
            url += "?" + urllib.parse.urlencode(params)
        return url if server is None else server.rstrip("/") + url


def _quote(name: str) -> str:
    if name.isascii() and name.replace("-", "").isalnum():
        return name  # nearly always; this check is faster than a search for unsafe characters
    return urllib.parse.quote(name, safe="")


CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


def is_newer(version: str, other: str) -> bool:
    """Compare two versions of one resource in the way of Kubernetes: as integers of any length."""
    return (len(version), version) > (len(other), other)
