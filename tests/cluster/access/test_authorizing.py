from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.access import virtual
from kopf_cluster.access.authorizing import GROUP, Attributes, Policy, aggregate, forbidden
from kopf_cluster.control import basics
from kopf_cluster.requests import User
from kopf_cluster.statuses import APIStatus

JOE = User("joe", ("devs", "system:authenticated"))
ROBOT = User("system:serviceaccount:ns:robot", ("system:serviceaccounts", "system:serviceaccounts:ns"))


def rule(verbs: str, resources: str = "", group: str = "", names: str = "", paths: str = "") -> dict[str, Any]:
    raw: dict[str, Any] = {"verbs": verbs.split()}
    if paths:
        return {**raw, "nonResourceURLs": paths.split()}
    raw |= {"apiGroups": [group], "resources": resources.split()}
    return {**raw, "resourceNames": names.split()} if names else raw


def role(name: str, *rules: Any, namespace: str = "", **metadata: Any) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **where, **metadata}, "rules": list(rules)}


def binding(name: str, kind: str, ref: str, *subjects: str, namespace: str = "") -> dict[str, Any]:
    made: list[Any] = []
    for subject in subjects:
        what, who, *where = subject.split("/")
        made.append({"kind": what, "name": who, **({"namespace": where[0]} if where else {})})
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": ref}, "subjects": made}


def everywhere(*rules: Any, subject: str = "User/joe") -> Policy:
    return Policy(cluster_roles=[role("r", *rules)], cluster_role_bindings=[binding("b", "ClusterRole", "r", subject)])


@pytest.mark.parametrize(
    ("granted", "asked", "allowed"),
    [
        (rule("get", "pods"), Attributes("get", "", "pods", namespace="ns", name="x"), True),
        (rule("get", "pods"), Attributes("list", "", "pods", namespace="ns"), False),
        (rule("*", "pods"), Attributes("list", "", "pods", namespace="ns"), True),
        (rule("get", "pods"), Attributes("get", "apps", "pods", namespace="ns"), False),
        (rule("get", "pods", "*"), Attributes("get", "apps", "pods", namespace="ns"), True),
        (rule("get", "*"), Attributes("get", "", "secrets"), True),
        (rule("get", "*"), Attributes("get", "", "pods", "log"), True),
        (rule("get", "pods"), Attributes("get", "", "pods", "log"), False),
        (rule("get", "pods/log"), Attributes("get", "", "pods", "log"), True),
        (rule("get", "pods/log"), Attributes("get", "", "pods"), False),
        (rule("get", "*/status"), Attributes("get", "", "pods", "status"), True),
        (rule("get", "*/status"), Attributes("get", "", "pods", "log"), False),
        (rule("get", "*/status"), Attributes("get", "", "pods"), False),
        (rule("get", "pods/*"), Attributes("get", "", "pods", "log"), False),
        (rule("get", "pods", names="a b"), Attributes("get", "", "pods", name="b"), True),
        (rule("get", "pods", names="a b"), Attributes("get", "", "pods", name="c"), False),
        (rule("list", "pods", names="a b"), Attributes("list", "", "pods"), False),
        (rule("get", paths="/metrics"), Attributes("get", path="/metrics"), True),
        (rule("get", paths="/metrics"), Attributes("get", path="/metrics/x"), False),
        (rule("get", paths="/metrics/*"), Attributes("get", path="/metrics/x"), True),
        (rule("get", paths="*"), Attributes("get", path="/anything"), True),
        (rule("post", paths="*"), Attributes("get", path="/anything"), False),
        (rule("get", paths="*"), Attributes("get", "", "pods"), False),
        (rule("get", "*", "*"), Attributes("get", path="/metrics"), False),
    ],
)
def test_rules(granted: Any, asked: Attributes, allowed: bool) -> None:
    assert bool(everywhere(granted).authorize(JOE, asked)) is allowed


@pytest.mark.parametrize(
    ("subject", "user", "allowed"),
    [
        ("User/joe", JOE, True),
        ("User/jane", JOE, False),
        ("Group/devs", JOE, True),
        ("Group/joe", JOE, False),
        ("User/devs", JOE, False),
        ("ServiceAccount/robot/ns", ROBOT, True),
        ("ServiceAccount/robot/other", ROBOT, False),
        ("ServiceAccount/robot", ROBOT, False),
        ("User/system:serviceaccount:ns:robot", ROBOT, True),
        ("Group/system:serviceaccounts:ns", ROBOT, True),
    ],
)
def test_subjects(subject: str, user: User, allowed: bool) -> None:
    policy = everywhere(rule("get", "pods"), subject=subject)
    assert bool(policy.authorize(user, Attributes("get", "", "pods", namespace="ns"))) is allowed


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_bindings_in_a_namespace(kind: str) -> None:
    policy = Policy(
        roles=[role("r", rule("get", "pods"), rule("get", paths="*"), namespace="ns")],
        cluster_roles=[role("r", rule("get", "pods"), rule("get", paths="*"))],
        role_bindings=[binding("b", kind, "r", "User/joe", "ServiceAccount/robot", namespace="ns")],
    )
    assert policy.authorize(JOE, Attributes("get", "", "pods", namespace="ns"))
    assert policy.authorize(ROBOT, Attributes("get", "", "pods", namespace="ns"))
    assert not policy.authorize(JOE, Attributes("get", "", "pods", namespace="other"))
    assert not policy.authorize(JOE, Attributes("get", "", "pods"))
    assert not policy.authorize(JOE, Attributes("get", path="/metrics"))


def test_reasons_of_permissions() -> None:
    policy = Policy(
        roles=[role("r", rule("get", "pods"), namespace="ns")],
        cluster_roles=[role("c", rule("list", "pods"))],
        role_bindings=[binding("b", "Role", "r", "ServiceAccount/robot/ns", namespace="ns")],
        cluster_role_bindings=[binding("cb", "ClusterRole", "c", "Group/devs")],
    )
    assert policy.authorize(ROBOT, Attributes("get", "", "pods", namespace="ns")).reason == (
        'RBAC: allowed by RoleBinding "b/ns" of Role "r" to ServiceAccount "robot/ns"'
    )
    assert policy.authorize(JOE, Attributes("list", "", "pods")).reason == (
        'RBAC: allowed by ClusterRoleBinding "cb" of ClusterRole "c" to Group "devs"'
    )


def test_superusers_need_no_roles() -> None:
    admin = User("admin", ("system:masters",))
    assert Policy().authorize(admin, Attributes("delete", "", "nodes", name="x"))
    assert Policy().authorize(admin, Attributes("get", path="/metrics"))
    assert not Policy().authorize(JOE, Attributes("get", path="/metrics"))


@pytest.mark.parametrize(
    ("asked", "message", "details"),
    [
        (
            Attributes("list", "", "pods", namespace="default"),
            'pods is forbidden: User "joe" cannot list resource "pods" in API group "" in the namespace "default"',
            {"kind": "pods"},
        ),
        (
            Attributes("get", "", "pods", "log", "default", "x"),
            'pods "x" is forbidden: User "joe" cannot get resource "pods/log" in API group "" in the namespace '
            '"default"',
            {"kind": "pods", "name": "x"},
        ),
        (
            Attributes("watch", "apps", "deployments"),
            (
                'deployments.apps is forbidden: User "joe" cannot watch resource "deployments" in API group "apps" '
                "at the cluster scope"
            ),
            {"kind": "deployments", "group": "apps"},
        ),
        (Attributes("get", path="/metrics"), 'forbidden: User "joe" cannot get path "/metrics"', {}),
    ],
)
def test_refusals(asked: Attributes, message: str, details: Any) -> None:
    status = forbidden(JOE, asked, Policy().authorize(JOE, asked)).as_object()
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": 403,
        "reason": "Forbidden",
        "message": message,
        "details": details,
    }


def test_refusals_tell_of_roles_that_do_not_exist() -> None:
    policy = Policy(
        role_bindings=[binding("b", "Role", "gone", "User/joe", namespace="ns")],
        cluster_role_bindings=[binding("c", "ClusterRole", "lost", "Group/devs")],
    )
    asked = Attributes("get", "", "pods", namespace="ns")
    assert forbidden(JOE, asked, policy.authorize(JOE, asked)).message.endswith(
        'in the namespace "ns": RBAC: [role.rbac.authorization.k8s.io "gone" not found, '
        'clusterrole.rbac.authorization.k8s.io "lost" not found]'
    )
    assert policy.authorize(JOE, Attributes("get", "", "pods")).reason == (
        'RBAC: clusterrole.rbac.authorization.k8s.io "lost" not found'
    )


def test_aggregated_roles() -> None:
    parts = [
        role("a", rule("get", "a"), labels={"to": "x"}),
        role("b", rule("get", "b"), labels={"to": "y"}),
        role("c", rule("get", "c"), labels={"env": "z"}),
        role("d", rule("get", "d")),
    ]
    selectors = [{"matchLabels": {"to": "x"}}, {"matchExpressions": [{"key": "env", "operator": "Exists"}]}]
    whole = role("whole", rule("get", "stale")) | {"aggregationRule": {"clusterRoleSelectors": selectors}}
    assert aggregate(whole, [*parts, whole]) == [rule("get", "a"), rule("get", "c")]
    policy = Policy(
        cluster_roles=[*parts, whole], cluster_role_bindings=[binding("b", "ClusterRole", "whole", "User/joe")]
    )
    allowed = [name for name in ("a", "b", "c", "d", "stale") if policy.authorize(JOE, Attributes("get", "", name))]
    assert allowed == ["a", "c"]


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ["x"], ["a"]),
        ("NotIn", ["x"], ["b", "c"]),
        ("Exists", None, ["a", "b"]),
        ("DoesNotExist", None, ["c"]),
    ],
)
def test_expressions_of_aggregation(operator: str, values: Any, expected: list[str]) -> None:
    parts = [
        role("a", rule("get", "a"), labels={"k": "x"}),
        role("b", rule("get", "b"), labels={"k": "y"}),
        role("c", rule("get", "c")),
    ]
    selector = {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}
    whole = role("whole") | {"aggregationRule": {"clusterRoleSelectors": [selector]}}
    assert aggregate(whole, parts) == [rule("get", name) for name in expected]


def test_roles_that_aggregate_each_other() -> None:
    one = role("1", labels={"a": "1"}) | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "2"}}]}}
    two = role("2", labels={"a": "2"}) | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "1"}}]}}
    assert aggregate(one, [one, two]) == []


# ------------------------------------------------------------------------------------------ default roles


def default_policy(*bindings: Any) -> Policy:
    return Policy(
        cluster_roles=basics.cluster_roles(), cluster_role_bindings=[*basics.cluster_role_bindings(), *bindings]
    )


@pytest.mark.parametrize(
    ("name", "may", "may_not"),
    [
        (
            "view",
            [Attributes("list", "apps", "deployments"), Attributes("get", "", "pods", "log")],
            [Attributes("get", "", "secrets"), Attributes("create", "", "pods"), Attributes("get", GROUP, "roles")],
        ),
        (
            "edit",
            [
                Attributes("get", "", "secrets"),
                Attributes("delete", "batch", "jobs"),
                Attributes("get", "", "pods", "log"),
                Attributes("create", "", "pods", "exec"),
            ],
            [
                Attributes("create", GROUP, "roles"),
                Attributes("update", "", "namespaces"),
                Attributes("get", "", "nodes"),
            ],
        ),
        (
            "admin",
            [
                Attributes("create", GROUP, "rolebindings"),
                Attributes("get", "", "secrets"),
                Attributes("get", "", "pods"),
            ],
            [Attributes("create", GROUP, "clusterroles"), Attributes("update", "", "resourcequotas")],
        ),
        ("cluster-admin", [Attributes("x", "y", "z"), Attributes("get", path="/metrics")], []),
    ],
)
def test_default_roles(name: str, may: list[Attributes], may_not: list[Attributes]) -> None:
    policy = default_policy(binding("b", "ClusterRole", name, "User/joe"))
    assert [asked for asked in may if not policy.authorize(JOE, asked)] == []
    assert [asked for asked in may_not if policy.authorize(JOE, asked)] == []


def test_everybody_may_discover_and_review_themselves() -> None:
    policy = default_policy()
    stranger = User("system:anonymous", ("system:unauthenticated",))
    asked = Attributes("create", "authorization.k8s.io", "selfsubjectaccessreviews")
    assert policy.authorize(JOE, Attributes("get", path="/apis/apps/v1"))
    assert policy.authorize(JOE, asked)
    assert policy.authorize(stranger, Attributes("get", path="/version"))
    assert not policy.authorize(stranger, Attributes("get", path="/apis"))
    assert not policy.authorize(stranger, asked)


def test_default_roles_are_complete_objects() -> None:
    roles = {item["metadata"]["name"] for item in basics.cluster_roles()}
    for item in basics.cluster_roles():
        assert (item["apiVersion"], item["kind"]) == ("rbac.authorization.k8s.io/v1", "ClusterRole")
        assert item["rules"] or item["aggregationRule"]
        assert all(rule["verbs"] for rule in item["rules"])
    for item in basics.cluster_role_bindings():
        assert item["kind"] == "ClusterRoleBinding"
        assert item["roleRef"]["name"] in roles
        assert item["subjects"]


# ------------------------------------------------------------------------------------------ reviews


def test_a_review_of_own_access() -> None:
    policy = everywhere(rule("get", "pods"))
    assert virtual.review_access(
        policy, JOE, {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "ns"}}
    ) == {"allowed": True, "reason": 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "joe"'}
    assert virtual.review_access(
        policy, JOE, {"resourceAttributes": {"verb": "get", "resource": "pods", "subresource": "log"}}
    ) == {"allowed": False}
    assert virtual.review_access(policy, JOE, {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}) == {
        "allowed": False
    }


def test_a_review_of_the_access_of_others() -> None:
    policy = everywhere(rule("get", "pods"), subject="Group/devs")
    asked = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert virtual.review_subject_access(policy, {**asked, "user": "x", "groups": ["devs"]})["allowed"]
    assert not virtual.review_subject_access(policy, {**asked, "user": "x"})["allowed"]


@pytest.mark.parametrize(
    ("spec", "own", "expected"),
    [
        ({"resourceAttributes": {"verb": "get"}}, True, []),
        ({"nonResourceAttributes": {"verb": "get"}}, True, []),
        (
            {},
            True,
            [
                (
                    "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or "
                    "resourceAttributes must be specified"
                )
            ],
        ),
        (
            {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}},
            True,
            [
                (
                    'spec.nonResourceAttributes: Invalid value: {"path":"/"}: cannot be specified in combination with '
                    "resourceAttributes"
                )
            ],
        ),
        (
            {"resourceAttributes": {"verb": "get"}},
            False,
            ['spec.user: Invalid value: "": at least one of user or group must be specified'],
        ),
        ({"resourceAttributes": {"verb": "get"}, "groups": ["g"]}, False, []),
    ],
)
def test_wrong_reviews(spec: Any, own: bool, expected: list[str]) -> None:
    assert [str(error) for error in virtual.validate_access_review(spec, own=own)] == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"resourceAttributes": {"namespace": "ns"}, "user": "x"}, []),
        (
            {"resourceAttributes": {"namespace": "other"}, "user": "x"},
            ['spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace: ns'],
        ),
        (
            {"nonResourceAttributes": {"path": "/"}, "user": "x"},
            ['spec.nonResourceAttributes: Invalid value: {"path":"/"}: disallowed on this kind of request'],
        ),
    ],
)
def test_wrong_local_reviews(spec: Any, expected: list[str]) -> None:
    assert [str(error) for error in virtual.validate_local_review(spec, "ns")] == expected


def test_a_review_of_rules() -> None:
    policy = Policy(
        roles=[
            role("r", rule("get", "pods", names="x"), namespace="ns"),
            role("o", rule("get", "x"), namespace="other"),
        ],
        cluster_roles=[role("c", rule("get", paths="/x"))],
        role_bindings=[
            binding("b", "Role", "r", "User/joe", namespace="ns"),
            binding("o", "Role", "o", "User/joe", namespace="other"),
        ],
        cluster_role_bindings=[binding("c", "ClusterRole", "c", "Group/devs")],
    )
    assert virtual.review_rules(policy, JOE, {"namespace": "ns"}) == {
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
        "incomplete": False,
    }
    with pytest.raises(APIStatus, match=r"^no namespace on request$"):
        virtual.review_rules(policy, JOE, {})


NAMES = st.sampled_from(["a", "b", "*"])


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=4), NAMES, NAMES, NAMES)
def test_law_more_rules_never_forbid(rules: Any, verb: str, group: str, resource: str) -> None:
    granted = [rule(one[0], one[1], one[2]) for one in rules]
    asked = Attributes(verb, group, resource)
    verdicts = [bool(everywhere(*granted[:count]).authorize(JOE, asked)) for count in range(len(granted) + 1)]
    assert verdicts == sorted(verdicts)
    assert verdicts[-1] == any(
        one[0] in ("*", verb) and one[1] in ("*", resource) and one[2] in ("*", group) for one in rules
    )
