from __future__ import annotations

from typing import Any

import pytest

import kopf
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry, deduplicate
from kopf._values.reasons import Activity
from kopf._values.resources import Resource
from kopf._values.selectors import EVERYTHING, Selector
from tests.handlers.builders import do_nothing, make_activity_handler, make_changing_handler, make_watching_handler

KEX = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample")
RIVAL = Resource("rival.dev", "v1", "kopfexamples", "RivalExample")
PODS = Resource("", "v1", "pods", "Pod")
OTHER_PODS = Resource("metrics.k8s.io", "v1", "pods", "PodMetrics")


def test_an_empty_registry_is_false(registry: OperatorRegistry) -> None:
    assert not registry
    assert registry.plan([KEX]) == {}
    assert registry.get_activities(Activity.STARTUP) == []


@pytest.mark.parametrize("handler", [make_activity_handler(), make_watching_handler(), make_changing_handler()])
def test_a_registry_with_any_handler_is_true(registry: OperatorRegistry, handler: Any) -> None:
    registry.append(handler)
    assert registry


def test_activities_are_in_the_order_of_declaration(registry: OperatorRegistry) -> None:
    startups = [make_activity_handler(id) for id in "cab"]
    for handler in [startups[0], make_activity_handler(activity=Activity.CLEANUP), *startups[1:]]:
        registry.append(handler)
    assert registry.get_activities(Activity.STARTUP) == startups


def test_handlers_are_spread_over_their_resources_in_the_order_of_declaration(registry: OperatorRegistry) -> None:
    handlers = [
        make_changing_handler("a", selector=Selector("kopfexamples")),
        make_changing_handler("b", selector=Selector(EVERYTHING)),
        make_watching_handler("c", selector=Selector("v1", "pods")),
        make_changing_handler("d", selector=Selector("kopf.dev", "kopfexamples")),
        make_changing_handler("e", selector=Selector("absents")),
    ]
    for handler in handlers:
        registry.append(handler)
    plan = registry.plan([PODS, KEX])
    assert set(plan) == {PODS, KEX}
    assert plan[KEX].changing == (handlers[0], handlers[1], handlers[3])
    assert plan[KEX].watching == ()
    assert plan[PODS].changing == (handlers[1],)
    assert plan[PODS].watching == (handlers[2],)


def test_resources_without_handlers_are_left_out(registry: OperatorRegistry) -> None:
    registry.append(make_changing_handler(selector=Selector("pods")))
    assert set(registry.plan([KEX, PODS])) == {PODS}


def test_ambiguous_selectors_are_reported_and_not_served(registry: OperatorRegistry) -> None:
    ambiguous, specific = Selector("kopfexamples"), Selector("kopfexamples.kopf.dev")
    registry.append(make_changing_handler("ambiguous", selector=ambiguous))
    registry.append(make_changing_handler("specific", selector=specific))
    plan = registry.plan([KEX, RIVAL])
    assert [handler.id for handler in plan[KEX].changing] == ["specific"]
    assert RIVAL not in plan
    ambiguities = registry.get_ambiguities([KEX, RIVAL])
    assert {selector: set(resources) for selector, resources in ambiguities.items()} == {ambiguous: {KEX, RIVAL}}


@pytest.mark.parametrize("selector", [Selector(EVERYTHING), Selector(lambda resource: resource.plural == "pods")])
def test_several_resources_are_not_ambiguous_if_it_is_the_intention(
    registry: OperatorRegistry, selector: Selector
) -> None:
    registry.append(make_changing_handler(selector=selector))
    assert registry.get_ambiguities([PODS, OTHER_PODS]) == {}
    assert set(registry.plan([PODS, OTHER_PODS])) == {PODS, OTHER_PODS}


def test_the_core_api_is_not_ambiguous(registry: OperatorRegistry) -> None:
    registry.append(make_changing_handler(selector=Selector("pods")))
    assert registry.get_ambiguities([PODS, OTHER_PODS]) == {}
    assert set(registry.plan([PODS, OTHER_PODS])) == {PODS}


def test_unmatched_selectors_are_reported(registry: OperatorRegistry) -> None:
    registry.append(make_changing_handler(selector=Selector("pods")))
    registry.append(make_watching_handler(selector=Selector("absents")))
    assert list(registry.get_unmatched([KEX, PODS])) == [Selector("absents")]


def test_selectors_are_listed_once(registry: OperatorRegistry) -> None:
    for selector in [Selector("pods"), Selector("pods"), Selector("v1", "pods")]:
        registry.append(make_changing_handler(selector=selector))
    assert registry.get_selectors() == [Selector("pods"), Selector("v1", "pods")]


# --- the handlers of one resource ---


@pytest.mark.parametrize(
    ("field", "is_extra"),
    [
        ((), False),
        (("spec",), False),
        (("spec", "status"), False),
        (("data", "key"), False),
        (("metadata",), False),
        (("metadata", "labels"), False),
        (("metadata", "labels", "l"), False),
        (("metadata", "annotations", "a"), False),
        (("metadata", "finalizers"), True),
        (("metadata", "name"), True),
        (("status",), True),
        (("status", "phase"), True),
        (("kind",), True),
    ],
)
def test_fields_out_of_the_essence_are_collected_from_the_handlers_of_changes(field: Any, is_extra: bool) -> None:
    handlers = [make_changing_handler(field=field), make_watching_handler(field=("status", "raw"))]
    assert HandlersOfResource.build(handlers).extra_fields == ((field,) if is_extra else ())


class Namespace:
    def method(self, **_: Any) -> None: ...


def test_a_function_is_not_called_twice_under_the_same_id() -> None:
    instance = Namespace()
    first, method = make_changing_handler("fn"), make_changing_handler("method", fn=instance.method)
    others = [
        make_changing_handler("fn/spec.field"),
        make_changing_handler("fn", fn=lambda **_: None),
        make_changing_handler("method", fn=Namespace().method),
    ]
    same = [make_changing_handler("fn", param=1), make_changing_handler("method", fn=instance.method)]
    assert first.fn is same[0].fn is do_nothing
    assert list(deduplicate([first, method, *same, *others])) == [first, method, *others]


# --- the default registry ---


def test_there_is_one_default_registry_until_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kopf._handlers.registry._default_registry", None)  # as after the import
    registry = kopf.get_default_registry()
    assert isinstance(registry, kopf.OperatorRegistry)
    assert kopf.get_default_registry() is registry
    another = kopf.OperatorRegistry()
    kopf.set_default_registry(another)
    assert kopf.get_default_registry() is another


def test_decorators_fill_the_default_registry_of_their_moment() -> None:
    first, second = OperatorRegistry(), OperatorRegistry()
    kopf.set_default_registry(first)
    kopf.on.create("pods")(do_nothing)
    kopf.set_default_registry(second)
    kopf.on.startup()(do_nothing)
    assert (len(first.resources), len(first.activities)) == (1, 0)
    assert (len(second.resources), len(second.activities)) == (0, 1)
