"""
What the server tells of itself to Prometheus: how many requests were answered, and how many objects there are.

The names are those of kube-apiserver, see "Kubernetes Metrics Reference"; there are hundreds more in a real server.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from kopf_cluster.kinds.registry import Registry
from kopf_cluster.requests import Answer, Request
from kopf_cluster.statuses import group_resource
from kopf_cluster.store.storage import Store

Counters: TypeAlias = Mapping[tuple[str, str, int], int]

_VERBS: Final = {"create": "POST", "update": "PUT"}
_REQUESTS: Final = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, resource and HTTP code.
# TYPE apiserver_request_total counter
"""
_OBJECTS: Final = """\
# HELP apiserver_storage_objects [STABLE] Number of stored objects split by kind.
# TYPE apiserver_storage_objects gauge
"""


class Metrics:
    """Answers to those who scrape."""

    def __init__(self, store: Store, registry: Registry, counters: Callable[[], Counters]) -> None:
        super().__init__()
        self._store = store
        self._registry = registry
        self._counters = counters

    def answer(self, request: Request) -> Answer | None:
        """Answer if the path is that of the metrics."""
        if request.path != ("metrics",):
            return None
        text = _REQUESTS + "".join(self._count_requests()) + _OBJECTS + "".join(self._count_objects())
        return Answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")

    def _count_requests(self) -> Iterator[str]:
        for (verb, resource, code), count in sorted(self._counters().items()):
            plural, _, subresource = resource.partition("/")
            yield (f'apiserver_request_total{{code="{code}",component="apiserver",resource="{plural}",'
                   f'subresource="{subresource}",verb="{_VERBS.get(verb, verb.upper())}"}} {count}\n')

    def _count_objects(self) -> Iterator[str]:
        for kind in self._registry.unique_kinds():
            if kind.is_stored:
                yield (f'apiserver_storage_objects{{resource="{group_resource(kind)}"}} '
                       f"{self._store.bucket(kind.bucket).count()}\n")
