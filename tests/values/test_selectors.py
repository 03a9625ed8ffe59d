from __future__ import annotations

from typing import Any

import pytest

from kopf._values.resources import EVENTS, Resource
from kopf._values.selectors import EVERYTHING, Selector


def make(group: str, version: str, plural: str, kind: str, singular: str, shortcut: str, **kwargs: Any) -> Resource:
    return Resource(group, version, plural, kind, singular, frozenset({shortcut}), **kwargs)


ALL = frozenset({"all"})
KEX = make("kopf.dev", "v1", "kopfexamples", "KopfExample", "kopfexample", "kex", categories=ALL)
KEX_OLD = make("kopf.dev", "v1beta1", "kopfexamples", "KopfExample", "kopfexample", "kex", preferred=False)
OTHER = make("kopf.dev", "v1", "others", "Other", "other", "ot")
PODS = make("", "v1", "pods", "Pod", "pod", "po", categories=ALL)
POD_METRICS = make("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", "podmetric", "pm")
DEPLOYMENTS = make("apps", "v1", "deployments", "Deployment", "deployment", "deploy", categories=ALL)
CORE_EVENTS = make("", "v1", "events", "Event", "event", "ev")
NEW_EVENTS = make("events.k8s.io", "v1", "events", "Event", "event", "ev")
RESOURCES = [KEX, KEX_OLD, OTHER, PODS, POD_METRICS, DEPLOYMENTS, CORE_EVENTS, NEW_EVENTS]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        # Separate parts, the name is the last one:
        (("kopf.dev", "v1", "kopfexamples"), {}, [KEX]),
        (("kopf.dev", "v1beta1", "kopfexamples"), {}, [KEX_OLD]),
        (("kopf.dev/v1", "kopfexamples"), {}, [KEX]),
        (("kopf.dev/v1beta1", "kopfexamples"), {}, [KEX_OLD]),
        (("apps", "v1", "deployments"), {}, [DEPLOYMENTS]),
        (("apps/v1", "deployments"), {}, [DEPLOYMENTS]),
        # The only API part is the group, and its preferred version is meant:
        (("kopf.dev", "kopfexamples"), {}, [KEX]),
        (("apps", "deployments"), {}, [DEPLOYMENTS]),
        (("metrics.k8s.io", "pods"), {}, [POD_METRICS]),
        # ... except for the core API:
        (("v1", "pods"), {}, [PODS]),
        (("", "v1", "pods"), {}, [PODS]),
        (("", "pods"), {}, [PODS]),
        # As in kubectl:
        (("kopfexamples.kopf.dev",), {}, [KEX]),
        (("kopfexamples.v1beta1.kopf.dev",), {}, [KEX_OLD]),
        (("deployments.apps",), {}, [DEPLOYMENTS]),
        (("deployments.v1.apps",), {}, [DEPLOYMENTS]),
        (("pods.v1",), {}, [PODS]),
        (("pods.metrics.k8s.io",), {}, [POD_METRICS]),
        (("pods.v1beta1.metrics.k8s.io",), {}, [POD_METRICS]),
        # Only a name, any of them:
        (("kopfexamples",), {}, [KEX]),
        (("kopfexample",), {}, [KEX]),
        (("KopfExample",), {}, [KEX]),
        (("kex",), {}, [KEX]),
        (("apps", "deploy"), {}, [DEPLOYMENTS]),
        (("apps/v1", "Deployment"), {}, [DEPLOYMENTS]),
        # A specific name:
        ((), {"plural": "kopfexamples"}, [KEX]),
        ((), {"singular": "kopfexample"}, [KEX]),
        ((), {"kind": "KopfExample"}, [KEX]),
        ((), {"shortcut": "kex"}, [KEX]),
        ((), {"group": "kopf.dev", "version": "v1beta1", "plural": "kopfexamples"}, [KEX_OLD]),
        ((), {"group": "", "plural": "pods"}, [PODS]),
        (("kopfexamples",), {"group": "kopf.dev"}, [KEX]),
        (("kopfexamples",), {"version": "v1beta1"}, [KEX_OLD]),
        (("kopf.dev", "kopfexamples"), {"version": "v1beta1"}, [KEX_OLD]),
        # ... does not match all other names:
        ((), {"plural": "kopfexample"}, []),
        ((), {"kind": "kopfexamples"}, []),
        ((), {"shortcut": "kopfexamples"}, []),
        ((), {"singular": "kex"}, []),
        # Many by intention:
        ((), {"category": "all"}, [KEX, PODS, DEPLOYMENTS]),
        (("apps",), {"category": "all"}, TypeError),
        ((), {"category": "all", "group": "apps"}, [DEPLOYMENTS]),
        (("kopf.dev", "v1", EVERYTHING), {}, [KEX, OTHER]),
        (("kopf.dev/v1beta1", EVERYTHING), {}, [KEX_OLD]),
        (("kopf.dev", EVERYTHING), {}, [KEX, OTHER]),
        ((EVERYTHING,), {}, [KEX, OTHER, PODS, POD_METRICS, DEPLOYMENTS]),
        (("v1", EVERYTHING), {}, [PODS]),
        ((lambda resource: resource.plural == "pods",), {}, [PODS, POD_METRICS]),
        (("", "v1", lambda resource: True), {}, [PODS, CORE_EVENTS]),
        (("apps", lambda resource: True), {}, [DEPLOYMENTS]),
        # Nothing matches:
        (("absents",), {}, []),
        (("kopf.dev", "v2", "kopfexamples"), {}, []),
        (("absent.dev", EVERYTHING), {}, []),
    ],
)
def test_all_notations(args: Any, kwargs: Any, expected: Any) -> None:
    if expected is TypeError:
        with pytest.raises(TypeError):
            Selector(*args, **kwargs)
    else:
        assert set(Selector(*args, **kwargs).select(RESOURCES)) == set(expected)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "not specified"),
        ((), {"group": "apps"}, "not specified"),
        ((), {"group": "apps", "version": "v1"}, "not specified"),
        (("",), {}, "cannot be empty"),
        (("apps", ""), {}, "cannot be empty"),
        ((), {"plural": ""}, "cannot be empty"),
        (("pods",), {"plural": "pods"}, "only one name"),
        ((EVERYTHING,), {"category": "all"}, "only one name"),
        ((lambda resource: True,), {"kind": "Pod"}, "only one name"),
        ((), {"kind": "Pod", "plural": "pods"}, "only one name"),
        (("apps", "deployments"), {"group": "batch"}, "group .*differently: 'apps' & 'batch'"),
        (("apps/v1", "deployments"), {"version": "v2"}, "version .*differently: 'v1' & 'v2'"),
        (("deployments.apps",), {"group": "batch"}, "group .*differently"),
        (("batch", "deployments.apps"), {}, "group .*differently: 'batch' & 'apps'"),
        (("pods.v1",), {"version": "v2"}, "version .*differently"),
        ((EVERYTHING, "pods"), {}, "must be strings"),
        ((lambda resource: True, "v1", "pods"), {}, "must be strings"),
    ],
)
def test_contradictions_are_refused_with_an_explanation(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Selector(*args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("apps", "deployments"), {"group": "apps", "version": "v1"}),
        (("apps/v1", "deployments"), {"group": "apps", "version": "v1"}),
        (("deployments.apps",), {"group": "apps", "version": "v1"}),
        (("deployments.v1.apps",), {"group": "apps"}),
        (("apps", "deployments.apps"), {"version": "v1"}),
        (("apps", "deployments.v1.apps"), {}),
        (("apps/v1", "deployments.v1.apps"), {"group": "apps", "version": "v1"}),
    ],
)
def test_the_same_can_be_said_several_times(args: Any, kwargs: Any) -> None:
    assert Selector(*args, **kwargs) == Selector("apps", "v1", "deployments")


@pytest.mark.parametrize("args", [("pods",), ("po",), ("Pod",)])
def test_the_core_api_has_the_priority(args: Any) -> None:
    rival = make("rival.dev", "v1", "pods", "Pod", "pod", "po")
    assert set(Selector(*args).select([PODS, rival])) == {PODS}
    assert set(Selector(*args, group="rival.dev").select([PODS, rival])) == {rival}


def test_the_priority_is_only_for_specific_names() -> None:
    rival = make("rival.dev", "v1", "pods", "Pod", "pod", "po", categories=ALL)
    for selector in [Selector(category="all"), Selector(EVERYTHING), Selector(lambda resource: True)]:
        assert set(selector.select([PODS, rival])) == {PODS, rival}


def test_several_resources_for_one_name_are_all_reported_to_find_the_ambiguity() -> None:
    rival = make("rival.dev", "v1", "kopfexamples", "X", "x", "kex")
    assert set(Selector("kopfexamples").select([KEX, rival])) == {KEX, rival}
    assert set(Selector("kopfexamples.rival.dev").select([KEX, rival])) == {rival}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (Selector("pods"), True),
        (Selector("v1", "pods"), True),
        (Selector(kind="Pod"), True),
        (Selector(category="all"), False),
        (Selector(EVERYTHING), False),
        (Selector("kopf.dev", EVERYTHING), False),
        (Selector(lambda resource: True), False),
    ],
)
def test_specific_selectors_mean_one_resource(selector: Selector, expected: bool) -> None:
    assert selector.is_specific is expected


@pytest.mark.parametrize("args", [("v1", "events"), ("", "v1", "events"), ("events.v1",), ("v1", "Event")])
def test_core_events_are_handled_only_when_they_are_named(args: Any) -> None:
    assert set(Selector(*args).select(RESOURCES)) == {EVENTS}
    assert EVENTS not in Selector(EVERYTHING).select(RESOURCES)


def test_selectors_are_comparable_and_hashable() -> None:
    assert Selector("kopf.dev/v1", "kopfexamples") == Selector("kopf.dev", "v1", "kopfexamples")
    assert len({Selector("pods.v1"), Selector("v1", "pods"), Selector("", "v1", "pods")}) == 1
    assert Selector("pods") != Selector(plural="pods")


def test_selectors_are_shown_by_what_is_specified() -> None:
    assert repr(Selector("kopf.dev/v1", "kex")) == "Selector(group='kopf.dev', version='v1', any_name='kex')"
    assert repr(Selector(category="all")) == "Selector(category='all')"


def is_pod(resource: Resource) -> bool:
    return resource.plural == "pods"


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (Selector("pods"), "'pods'"),
        (Selector("kopf.dev", "kopfexamples"), "'kopfexamples' of kopf.dev"),
        (Selector("kopf.dev/v1", "kopfexamples"), "'kopfexamples' of kopf.dev/v1"),
        (Selector(kind="Pod"), "kind='Pod'"),
        (Selector(category="all"), "category='all'"),
        (Selector(category="all", group="apps"), "category='all' of apps"),
        (Selector(EVERYTHING), "kopf.EVERYTHING"),
        (Selector("kopf.dev", EVERYTHING), "kopf.EVERYTHING of kopf.dev"),
        (Selector(is_pod), f"is_pod ({__file__}:{is_pod.__code__.co_firstlineno})"),
    ],
)
def test_selectors_are_shown_as_they_were_written(selector: Selector, text: str) -> None:
    assert str(selector) == text
