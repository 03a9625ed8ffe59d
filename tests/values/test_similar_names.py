from __future__ import annotations

from typing import Any

import pytest

from kopf._values.resources import Resource
from kopf._values.selectors import EVERYTHING, Selector
from kopf._values.similar_names import suggest

RESOURCES = [
    Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", "kopfexample", frozenset({"kex", "kexes"})),
    Resource("kopf.dev", "v1beta1", "kopfexamples", "KopfExample", "kopfexample", preferred=False),
    Resource("example.com", "v1", "examples", "Example", "example", categories=frozenset({"all"})),
    Resource("", "v1", "pods", "Pod", "pod", frozenset({"po"})),
    Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", "pod"),
    Resource("apps", "v1", "deployments", "Deployment", "deployment", frozenset({"deploy"})),
]


@pytest.mark.parametrize(
    ("args", "options", "expected"),
    [
        (("kopfexmples",), {}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        (("kopfexampl",), {}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        (("KopfExamples",), {}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        (("Deploymnet",), {}, "Did you mean 'deployments' of apps/v1?"),
        (("deploi",), {}, "Did you mean 'deployments' of apps/v1?"),
        (("kexs",), {}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        (("apps", "kopfexmples"), {}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        (("kopf.dev", "kopfexmples"), {}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        (("kopf.dev/v1", "exmples"), {}, "Did you mean 'examples' of example.com/v1?"),
        (("pds",), {}, "Did you mean 'pods' of metrics.k8s.io/v1beta1 or 'pods' of v1?"),
        (("apps", "deploymants"), {}, "Did you mean 'deployments' of apps/v1?"),
        ((), {"plural": "kopfexmples"}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        ((), {"kind": "KopfExamples"}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        ((), {"kind": "kopfexamples"}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        ((), {"singular": "kopfexamples"}, "Did you mean 'kopfexamples' of kopf.dev/v1?"),
        ((), {"shortcut": "deploi"}, "Did you mean 'deployments' of apps/v1?"),
    ],
)
def test_similar_names(args: tuple[str, ...], options: Any, expected: str) -> None:
    assert suggest(Selector(*args, **options), RESOURCES) == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            ("kopf.dev", "v2", "kopfexamples"),
            "There is 'kopfexamples' of kopf.dev/v1 or 'kopfexamples' of kopf.dev/v1beta1, but kopf.dev/v2 is "
            "asked for.",
        ),
        (
            ("kopf.org", "kopfexamples"),
            "There is 'kopfexamples' of kopf.dev/v1 or 'kopfexamples' of kopf.dev/v1beta1, but kopf.org is asked for.",
        ),
        (("apps/v1beta1", "deployments"), "There is 'deployments' of apps/v1, but apps/v1beta1 is asked for."),
        (("Deployment.v1beta1.apps",), "There is 'deployments' of apps/v1, but apps/v1beta1 is asked for."),
        (("deploy.extensions",), "There is 'deployments' of apps/v1, but extensions is asked for."),
        (("", "deployments"), "There is 'deployments' of apps/v1, but the core API is asked for."),
        (("v1", "examples"), "There is 'examples' of example.com/v1, but v1 is asked for."),
    ],
)
def test_other_groups_and_versions(args: tuple[str, ...], expected: str) -> None:
    assert suggest(Selector(*args), RESOURCES) == expected


@pytest.mark.parametrize(
    "selector",
    [
        Selector("something"),
        Selector("kopf.dev", EVERYTHING),
        Selector(category="al"),
        Selector(lambda resource: False),
    ],
    ids=["name", "everything", "category", "function"],
)
def test_nothing_to_suggest(selector: Selector) -> None:
    assert suggest(selector, RESOURCES) is None


def test_an_empty_cluster() -> None:
    assert suggest(Selector("pods"), []) is None
