"""What the summary says of the resources and the namespaces."""

from __future__ import annotations

import pytest

from kopf._operator.readiness_summary import _describe_place
from kopf._values.resources import Resource

KEX = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
MANY = [Resource("kopf.dev", "v1", f"r{n}", f"R{n}", namespaced=True) for n in range(7)]


@pytest.mark.parametrize(
    ("resources", "scopes", "text"),
    [
        ([], [None], "watching nothing yet"),
        ([KEX], [None], "watching kopfexamples.kopf.dev/v1 in all namespaces"),
        ([NODES], [None], "watching nodes/v1 in the whole cluster"),
        ([KEX, NODES], [None], "watching kopfexamples.kopf.dev/v1 & nodes/v1 in all namespaces"),
        ([KEX, PODS], ["b", "a"], "watching kopfexamples.kopf.dev/v1 & pods/v1 in a & b"),
        ([PODS], ["a", "b", "c"], "watching pods/v1 in a, b & c"),
        ([PODS], [], "watching pods/v1 in no namespaces yet"),
        (MANY, [None], f"watching {', '.join(f'r{n}.kopf.dev/v1' for n in range(5))} & 2 more in all namespaces"),
    ],
    ids=str,
)
def test_places(resources: list[Resource], scopes: list[str | None], text: str) -> None:
    assert _describe_place(resources, scopes) == text
