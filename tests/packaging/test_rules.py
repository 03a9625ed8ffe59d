"""The permissions that are found out from the handlers, the settings, and the declared needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kopf
from kopf._handlers.registry import OperatorRegistry
from kopf._packaging.rules import (
    Rule,
    Situation,
    find_missing,
    find_resources,
    infer_rules,
    list_defined,
    merge_observed,
)
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from kopf_cluster.clients.operations import AGENT

KEX = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True, subresources=frozenset({"status"}))
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, subresources=frozenset({"status", "log"}))
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
KNOWN = [KEX, PODS, NODES, DEPLOYMENTS, SECRETS]

CRDS = ("", "customresourcedefinitions", "list watch")
EVENTS = ("", "events", "create patch")

Show = Callable[..., list[tuple[str, str, str]]]


@dataclasses.dataclass
class Status:
    conditions: kopf.ConditionList = dataclasses.field(default_factory=list)


class Modelled(
    kopf.CustomResource[dict[str, Any], Status],
    group="kopf.dev",
    version="v1",
    kind="KopfExample",
    plural="kopfexamples",
):
    """It has conditions."""


@pytest.fixture
def registry() -> Iterator[OperatorRegistry]:
    registry, previous = kopf.OperatorRegistry(), kopf.get_default_registry()
    kopf.set_default_registry(registry)
    yield registry
    kopf.set_default_registry(previous)


@pytest.fixture
def settings() -> OperatorSettings:
    return OperatorSettings()


@pytest.fixture
def show(registry: OperatorRegistry, settings: OperatorSettings) -> Show:
    """Infer the rules, and show them in short; those that all operators have are left out, unless asked for."""

    def show(*, every: bool = False, **situation: Any) -> list[tuple[str, str, str]]:
        resources, unknown = find_resources(registry, KNOWN)
        assert not unknown
        rules = infer_rules(registry, settings, resources, Situation(**situation))
        shown = [(rule.namespace, rule.resource, " ".join(rule.verbs)) for rule in rules]
        return [item for item in shown if every or item not in (CRDS, EVENTS)]

    return show


@pytest.mark.parametrize("mode", ["leader", "shards"])
@pytest.mark.parametrize(
    ("namespace", "own_namespace", "expected"),
    [(None, "own", ["own"]), ("other", "own", ["other"]), ("other", None, ["other"]), (None, None, [])],
)
def test_leases(
    registry: OperatorRegistry,
    settings: OperatorSettings,
    mode: Any,
    namespace: str | None,
    own_namespace: str | None,
    expected: list[str],
) -> None:
    assert infer_rules(registry, settings, KNOWN, Situation(own_namespace="own")) == []
    settings.coordination.mode, settings.coordination.namespace = mode, namespace
    rules = infer_rules(registry, settings, KNOWN, Situation(own_namespace=own_namespace))
    verbs = ("get", "list", "watch", "create", "patch")
    assert rules == [Rule(place, "coordination.k8s.io", "leases", (), verbs) for place in expected]


def returning(**_: Any) -> Any:
    return "result"


def silent(**_: Any) -> None:
    pass


async def silent_coroutine(**_: Any) -> None:
    pass


def patching(patch: Any, **_: Any) -> None:
    patch.status["x"] = 1


def collecting(**kwargs: Any) -> None:
    kwargs["patch"].status["x"] = 1


def with_children(**_: Any) -> None:
    @kopf.subhandler()
    def child(**_: Any) -> str:
        return "result"


HANDLED = ("", "kopfexamples", "list watch patch")
STATUS = ("", "kopfexamples/status", "patch")


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (silent, [HANDLED]),
        (silent_coroutine, [HANDLED]),
        *[(fn, [HANDLED, STATUS]) for fn in (returning, patching, collecting, with_children)],
    ],
)
@pytest.mark.parametrize(
    "decorator",
    [
        kopf.on.create,
        kopf.on.update,
        kopf.on.delete,
        kopf.on.resume,
        kopf.on.field,
        kopf.daemon,
        kopf.timer,
    ],
)
def test_handlers_that_are_saved(show: Show, decorator: Any, fn: Any, expected: list[Any]) -> None:
    options: dict[Any, dict[str, Any]] = {kopf.on.field: {"field": "spec"}, kopf.timer: {"interval": 1}}
    decorator("kopfexamples", **options.get(decorator, {}))(fn)
    assert show() == expected


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (silent, [("", "kopfexamples", "list watch")]),
        (returning, [HANDLED, STATUS]),
        (patching, [HANDLED, STATUS]),
    ],
)
def test_handlers_of_raw_events_write_only_if_they_say_so(show: Show, fn: Any, expected: list[Any]) -> None:
    kopf.on.event("kopfexamples")(fn)
    assert show() == expected


def test_indices_are_only_read(show: Show) -> None:
    kopf.index("kopfexamples")(returning)
    assert show() == [("", "kopfexamples", "list watch")]


def test_resources_without_the_status_subresource(show: Show) -> None:
    kopf.on.create("deployments")(returning)
    assert show() == [("", "deployments", "list watch patch")]


def test_progress_in_the_status(show: Show, settings: OperatorSettings) -> None:
    kopf.on.create("kopfexamples")(silent)
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
    assert show() == [HANDLED, STATUS]


def test_owned_resources_are_applied_and_block_their_owners(show: Show) -> None:
    kopf.on.create("kopfexamples", owns="deployments")(silent)
    assert show() == [
        ("", "deployments", "get list watch create patch"),
        HANDLED,
        ("", "kopfexamples/finalizers", "update"),
    ]


def test_reconcilers_delete_what_they_own_and_look_at_what_they_use(show: Show) -> None:
    def reconcile(**_: Any) -> Any:
        yield {}

    kopf.reconcile("kopfexamples", owns="deployments", uses=kopf.ref("secrets", lambda **_: "x"))(reconcile)
    assert show() == [
        ("", "secrets", "list watch"),
        ("", "deployments", "get list watch create patch delete"),
        HANDLED,
        ("", "kopfexamples/finalizers", "update"),
    ]


def test_conditions_are_in_the_status(show: Show) -> None:
    kopf.reconcile("kopfexamples", owns="deployments", conditions=True)(silent)
    assert STATUS in show()


@pytest.mark.parametrize(
    ("decorator", "options", "expected"),
    [
        (kopf.reconcile, {"owns": "deployments"}, True),
        (kopf.on.create, {}, True),  # it is said there if the object does not fit
        (kopf.timer, {"interval": 1}, True),
        (kopf.on.event, {}, False),
        (kopf.index, {}, False),
    ],
)
def test_conditions_of_models_are_in_the_status(
    show: Show, decorator: Any, options: dict[str, Any], expected: bool
) -> None:
    decorator(Modelled, **options)(silent)
    assert (STATUS in show()) is expected


def test_timers_own(show: Show) -> None:
    kopf.timer("kopfexamples", owns="deployments", interval=1)(silent)
    assert show()[0] == ("", "deployments", "get list watch create patch")


def test_what_all_operators_need(show: Show, settings: OperatorSettings) -> None:
    kopf.on.event("kopfexamples")(silent)
    assert show(every=True) == [EVENTS, CRDS, ("", "kopfexamples", "list watch")]
    settings.posting.enabled = False
    settings.scanning.disabled = True
    assert show(every=True) == [("", "kopfexamples", "list watch")]


def test_definitions_of_builtin_groups_are_not_observed(show: Show) -> None:
    kopf.on.event("", "v1", "pods")(silent)
    assert show(every=True) == [EVENTS, ("", "pods", "list watch")]


def test_what_admission_handlers_log_is_not_posted(show: Show) -> None:
    kopf.on.validate("", "v1", "pods")(silent)
    assert show(every=True) == []


def test_restricted_operators(show: Show, settings: OperatorSettings) -> None:
    kopf.on.event("kopfexamples")(silent)
    kopf.on.event("nodes")(silent)
    expected = [
        ("", "namespaces", "list watch"),
        ("", "nodes", "list watch"),
        CRDS,
        ("ns1", "events", "create patch"),
        ("ns1", "kopfexamples", "list watch"),
        ("default", "events", "create patch"),
    ]
    options = {"scopes": frozenset({"ns1"}), "has_namespaces": True}
    assert sorted(show(every=True, **options)) == sorted(expected)
    settings.scanning.disabled = True
    assert ("", "namespaces", "list watch") not in show(**options)
    assert ("", "namespaces", "list") in show(has_namespaces=True, has_patterns=True)


@pytest.mark.parametrize(
    ("is_restricted", "expected"),
    [
        (False, ("", "clusterkopfpeerings", ("default",))),
        (True, ("ns1", "kopfpeerings", ("default",))),
    ],
)
def test_peering(
    registry: OperatorRegistry,
    settings: OperatorSettings,
    is_restricted: bool,
    expected: tuple[Any, ...],
) -> None:
    settings.peering.mandatory = True
    situation = Situation(has_namespaces=is_restricted, scopes=frozenset({"ns1" if is_restricted else None}))
    rules = infer_rules(registry, settings, KNOWN, situation)
    found = {(rule.namespace, rule.resource, rule.names): rule.verbs for rule in rules}
    assert found[expected] == ("list", "watch", "patch")
    settings.peering.standalone = True
    assert expected not in {
        (rule.namespace, rule.resource, rule.names) for rule in infer_rules(registry, settings, KNOWN, situation)
    }


def test_admission(registry: OperatorRegistry, settings: OperatorSettings) -> None:
    kopf.on.validate("kopfexamples")(silent)
    settings.admission.managed = "auto.kopf.dev"
    settings.admission.server = kopf.WebhookServiceServer("hooks")
    rules = infer_rules(registry, settings, KNOWN, Situation(own_namespace="own"))
    assert [rule for rule in rules if "webhook" in rule.resource or rule.resource == "secrets"] == [
        Rule("", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ("auto.kopf.dev",), ("patch",)),
        Rule("", "admissionregistration.k8s.io", "validatingwebhookconfigurations", (), ("create",)),
        Rule(
            "",
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            ("auto.kopf.dev",),
            ("list", "watch", "patch"),
        ),
        Rule("own", "", "secrets", (), ("create",)),
        Rule("own", "", "secrets", ("hooks-webhook-certs",), ("get", "patch")),
    ]
    settings.admission.managed = None
    settings.admission.server = kopf.WebhookServer(host="x")
    assert not [rule for rule in infer_rules(registry, settings, KNOWN, Situation()) if "webhook" in rule.resource]


def test_conversions(registry: OperatorRegistry, settings: OperatorSettings) -> None:
    kopf.convert("kopfexamples.kopf.dev", "v1", "v2")(lambda obj, **_: obj)
    settings.scanning.disabled = True
    settings.admission.managed = "auto.kopf.dev"
    rules = infer_rules(registry, settings, KNOWN, Situation())
    assert (
        Rule(
            "",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            ("kopfexamples.kopf.dev",),
            ("list", "watch", "patch"),
        )
        in rules
    )


def test_declared_needs(show: Show, registry: OperatorRegistry) -> None:
    kopf.needs("secrets", verbs=["get"], names=["b", "a"])
    kopf.needs("pods/log", verbs=["get"], namespace="kube-system")
    kopf.needs("apps", "v1", "deployments", verbs=["patch", "create"])
    assert show() == [
        ("", "secrets", "get"),
        ("", "deployments", "create patch"),
        ("kube-system", "pods/log", "get"),
    ]
    assert registry.needs[0].names == ("b", "a")


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (["secrets"], {"verbs": "get"}),
        (["secrets"], {"verbs": []}),
        (["secrets"], {"verbs": ["get"], "names": "x"}),
        ([], {"verbs": ["get"]}),
        (["secrets"], {"verbs": [None]}),
    ],
)
def test_wrong_needs(registry: OperatorRegistry, args: list[str], options: Any) -> None:
    with pytest.raises(TypeError):
        kopf.needs(*args, **options)
    assert not registry.needs


def test_what_is_covered_is_not_repeated(show: Show) -> None:
    kopf.on.event("pods")(silent)
    kopf.needs("pods", verbs=["watch"], namespace="ns1")
    kopf.needs("pods", verbs=["list"], names=["x"])
    assert show() == [("", "pods", "list watch")]


def test_everything_is_a_wildcard(registry: OperatorRegistry, settings: OperatorSettings) -> None:
    kopf.on.event(kopf.EVERYTHING)(silent)
    kopf.on.event("pods")(silent)
    kopf.on.event("kopf.dev", kopf.EVERYTHING)(silent)
    resources, _ = find_resources(registry, KNOWN)
    rules = infer_rules(registry, settings, resources, Situation())
    assert [rule for rule in rules if "list" in rule.verbs] == [Rule("", "*", "*", (), ("list", "watch"))]


def test_resources_that_are_not_known(registry: OperatorRegistry) -> None:
    kopf.on.event("example.com", "v1", "widgets")(silent)
    kopf.on.event("gadgets.example.com")(silent)
    kopf.on.event("things")(silent)
    kopf.on.event("example.com", "v1", "Widget")(silent)
    found, unknown = find_resources(registry, KNOWN)
    assert {(item.group, item.plural) for item in found} == {("example.com", "widgets"), ("example.com", "gadgets")}
    assert [str(item) for item in unknown] == ["'things'", "'Widget' of example.com/v1"]


def test_definitions() -> None:
    versions: list[Any] = [
        {"name": "v1", "storage": True, "subresources": {"status": {}}},
        {"name": "v2", "served": False},
    ]
    spec = {
        "group": "g.io",
        "scope": "Namespaced",
        "names": {"plural": "xs", "kind": "X", "shortNames": ["y"]},
        "versions": versions,
    }
    [resource] = list_defined([{"spec": spec}])
    assert resource == Resource("g.io", "v1", "xs")
    assert (resource.kind, resource.singular, [*resource.shortcuts]) == ("X", "x", ["y"])
    assert ([*resource.subresources], resource.namespaced, resource.preferred) == (["status"], True, True)


@pytest.mark.parametrize(
    ("request_", "scopes", "expected"),
    [
        ({}, {None}, [("", "secrets", "get")]),
        ({"subresource": "scale"}, {None}, [("", "secrets/scale", "get")]),
        ({}, {"ns1"}, [("ns1", "secrets", "get")]),
        ({}, {"ns1", "ns2"}, [("ns1", "secrets", "get"), ("ns2", "secrets", "get")]),
        ({}, {"ns2"}, [("ns1", "secrets", "get")]),
        ({"namespace": ""}, {"ns1"}, [("", "secrets", "get")]),
        ({"agent": "kubectl/v1.36"}, {None}, []),
        ({"agent": AGENT}, {None}, []),
        ({"code": 403}, {None}, []),
        ({"resource": ""}, {None}, []),
        ({"group": "authorization.k8s.io"}, {None}, []),
    ],
)
def test_observed_requests(request_: Any, scopes: Any, expected: list[Any]) -> None:
    usual = {
        "namespace": "ns1",
        "group": "",
        "resource": "secrets",
        "subresource": "",
        "verb": "get",
        "code": 200,
        "agent": "client",
    }
    rules = merge_observed([], [{**usual, **request_}], Situation(scopes=frozenset(scopes)))
    assert [(rule.namespace, rule.resource, *rule.verbs) for rule in rules] == expected


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        ([], [("get", ""), ("list", "")]),
        ([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}], [("list", "")]),
        ([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], []),
        ([{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}], [("get", ""), ("list", "")]),
        (
            [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"], "resourceNames": ["x"]}],
            [("get", ""), ("list", "")],
        ),
    ],
)
def test_missing_permissions(granted: Any, missing: Any) -> None:
    assert list(find_missing(Rule("", "", "pods", (), ("get", "list")), granted)) == missing


def test_missing_permissions_for_names_and_subresources() -> None:
    rule = Rule("", "", "pods/log", ("x", "y"), ("get",))
    granted = {"apiGroups": [""], "resources": ["*/log"], "verbs": ["get"]}
    assert list(find_missing(rule, [granted])) == []
    assert list(find_missing(rule, [{**granted, "resourceNames": ["x"]}])) == [("get", "y")]
