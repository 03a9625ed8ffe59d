from __future__ import annotations

import asyncio
import base64
import json
import pathlib
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON,
    KEXES,
    MERGE,
    NAMESPACES,
    Client,
    Obj,
    make_config_map,
    make_definition,
    make_kex,
)
from tests.cluster.webhooks import Hooks, add, allow, deny, patch, respond, serve_hooks
from tests.ports import find_free_port

ANY_RULE = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
CONFIG_MAP_RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


def webhook(config: Obj, name: str = "x.example.com", **fields: Any) -> Obj:
    return {
        "name": name,
        "clientConfig": config,
        "rules": [CONFIG_MAP_RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def configure(cluster: LocalCluster, *webhooks: Obj, mutating: bool = False, name: str = "hooks") -> None:
    kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
    cluster.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": list(webhooks),
        }
    )


# ------------------------------------------------------------------------------------------ what is sent


async def test_a_life_is_reviewed(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    configure(cluster, webhook(hooks.on("/", allow)))
    created = await client.create(CONFIG_MAPS, make_config_map(data={"a": "1"}))
    await client.patch(f"{CONFIG_MAPS}/one", {"data": {"a": "2"}})
    await client.delete(f"{CONFIG_MAPS}/one")
    assert (await client.call("GET", f"{CONFIG_MAPS}/one")).status == 404
    assert [path for path, _ in hooks.reviews] == ["/"] * 3
    assert {(review["apiVersion"], review["kind"]) for _, review in hooks.reviews} == {
        ("admission.k8s.io/v1", "AdmissionReview")
    }
    creation, update, deletion = hooks.requests()
    assert creation["operation"] == "CREATE"
    assert creation["kind"] == creation["requestKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert creation["resource"] == creation["requestResource"] == resource
    assert (creation["namespace"], creation["name"]) == ("default", "one")
    assert (creation["oldObject"], creation["object"]["data"]) == (None, {"a": "1"})
    assert creation["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert creation["dryRun"] is False
    assert creation["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    assert creation["userInfo"]["username"]
    assert (update["operation"], update["options"]["kind"]) == ("UPDATE", "UpdateOptions")
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"a": "1"}, {"a": "2"})
    assert (deletion["operation"], deletion["options"]["kind"]) == ("DELETE", "DeleteOptions")
    assert (deletion["oldObject"]["data"], deletion["object"]) == ({"a": "2"}, None)


async def test_each_object_of_a_deleted_collection_is_reviewed_before_any_goes(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    for name in ("a", "b", "c"):
        await client.create(CONFIG_MAPS, make_config_map(name))
    configure(cluster, webhook(hooks.on("/", lambda review: respond(review, allowed=review["request"]["name"] != "c"))))
    reply = await client.call("DELETE", CONFIG_MAPS, expected=400)
    assert len((await client.get(CONFIG_MAPS))["items"]) == 3
    hooks.on("/", allow)
    reply = await client.call("DELETE", CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in reply.body["items"]] == ["a", "b", "c"]
    assert (await client.get(CONFIG_MAPS))["items"] == []


async def test_older_reviews_are_sent_to_those_who_want_them(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    configure(cluster, webhook(hooks.on("/", allow), admissionReviewVersions=["v2", "v1beta1", "v1"]))
    await client.create(CONFIG_MAPS, make_config_map())
    assert hooks.reviews[0][1]["apiVersion"] == "admission.k8s.io/v1beta1"


async def test_reads_and_configurations_themselves_are_not_reviewed(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    configure(cluster, webhook(hooks.on("/", deny("never")), rules=[ANY_RULE]))
    await client.get(CONFIG_MAPS)
    await client.delete("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks")
    await client.create(CONFIG_MAPS, make_config_map())
    assert not hooks.reviews


# ------------------------------------------------------------------------------------------ denials


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({}, 400, 'admission webhook "x.example.com" denied the request without explanation'),
        ({"message": "no way"}, 400, 'admission webhook "x.example.com" denied the request: no way'),
        ({"message": "no way", "code": 422}, 422, 'admission webhook "x.example.com" denied the request: no way'),
        ({"message": "fine", "code": 200}, 400, 'admission webhook "x.example.com" denied the request: fine'),
        ({"reason": "Forbidden"}, 400, 'admission webhook "x.example.com" denied the request: Forbidden'),
    ],
)
@pytest.mark.parametrize("mutating", [False, True])
async def test_denials_are_told_in_the_words_of_the_webhook(
    cluster: LocalCluster, client: Client, hooks: Hooks, status: Obj, code: int, message: str, mutating: bool
) -> None:
    configure(cluster, webhook(hooks.on("/", deny(**status))), mutating=mutating)
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map())
    assert (reply.status, reply.body["code"], reply.body["message"]) == (code, code, message)
    assert (await client.get(CONFIG_MAPS))["items"] == []


async def test_denied_updates_and_deletions_change_nothing(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    created = await client.create(CONFIG_MAPS, make_config_map(data={"a": "1"}))
    configure(cluster, webhook(hooks.on("/", deny("no"))))
    assert (await client.send_patch(f"{CONFIG_MAPS}/one", {"data": {"a": "2"}})).status == 400
    assert (await client.call("DELETE", f"{CONFIG_MAPS}/one")).status == 400
    assert await client.get(f"{CONFIG_MAPS}/one") == created


async def test_warnings_are_passed_to_the_client(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    configure(
        cluster,
        webhook(
            hooks.on(
                "/",
                lambda review: respond(
                    review,
                    allowed=review["request"]["name"] == "one",
                    warnings=["beware", 'of "quotes"', "of\nlines", "of\x7fcontrol", "für \\"],
                ),
            )
        ),
    )
    for name, status in (("one", 201), ("two", 400)):
        reply = await client.call("POST", CONFIG_MAPS, json=make_config_map(name), expected=status)
        assert reply.headers["Warning"] == r'299 - "beware", 299 - "of \"quotes\"", 299 - "für \\"'


# ------------------------------------------------------------------------------------------ mutation


async def test_objects_are_patched_before_they_are_validated(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    configure(cluster, webhook(hooks.on("/mutate", patch(add("/data", {"a": "b"})))), mutating=True)
    configure(cluster, webhook(hooks.on("/validate", allow)))
    created = await client.create(CONFIG_MAPS, make_config_map())
    assert created["data"] == (await client.get(f"{CONFIG_MAPS}/one"))["data"] == {"a": "b"}
    assert [path for path, _ in hooks.reviews] == ["/mutate", "/validate"]
    assert hooks.requests("/validate")[0]["object"]["data"] == {"a": "b"}


async def test_patched_objects_are_validated_and_pruned(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    cluster.apply(make_definition(spec={"type": "object", "properties": {"size": {"type": "integer", "default": 5}}}))
    config = hooks.on("/", patch(add("/spec/size", "big")))
    rule = {**CONFIG_MAP_RULE, "apiGroups": ["example.com"], "resources": ["kexes"]}
    configure(cluster, webhook(config, rules=[rule]), mutating=True)
    await client.call("POST", KEXES, json=make_kex(), expected=422)
    assert hooks.requests()[0]["object"]["spec"] == {"size": 5}, "webhooks see the defaults"
    hooks.on("/", patch(add("/spec/unknown", "x"), add("/spec/size", 6)))
    assert (await client.create(KEXES, make_kex()))["spec"] == {"size": 6}
    repaired = await client.create(KEXES, make_kex("two", spec={"size": "wrong"}))
    assert repaired["spec"] == {"size": 6}


async def test_mutating_webhooks_are_called_in_the_order_of_names_each_with_the_previous_result(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    configure(cluster, webhook(hooks.on("/3", patch(add("/data/three", "3")))), mutating=True, name="b")
    configure(
        cluster,
        webhook(hooks.on("/1", patch(add("/data", {"one": "1"}))), "z.example.com"),
        webhook(hooks.on("/2", patch(add("/data/two", "2"))), "y.example.com"),
        mutating=True,
        name="a",
    )
    created = await client.create(CONFIG_MAPS, make_config_map())
    assert created["data"] == {"one": "1", "two": "2", "three": "3"}
    assert [path for path, _ in hooks.reviews] == ["/1", "/2", "/3"]


async def test_webhooks_are_called_again_if_they_want_to_see_later_changes(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    configure(
        cluster,
        webhook(hooks.on("/1", allow), "a.example.com", reinvocationPolicy="IfNeeded"),
        webhook(hooks.on("/2", allow), "b.example.com"),
        webhook(hooks.on("/3", patch(add("/data", {"a": "b"}))), "c.example.com", reinvocationPolicy="IfNeeded"),
        mutating=True,
    )
    await client.create(CONFIG_MAPS, make_config_map())
    assert [path for path, _ in hooks.reviews] == ["/1", "/2", "/3", "/1"]
    assert hooks.requests()[3]["object"]["data"] == {"a": "b"}


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "resourceVersion"])
async def test_webhooks_cannot_change_the_identity(
    cluster: LocalCluster, client: Client, hooks: Hooks, field: str
) -> None:
    configure(cluster, webhook(hooks.on("/", patch(add(f"/metadata/{field}", "other")))), mutating=True)
    created = await client.create(CONFIG_MAPS, make_config_map())
    assert created["metadata"][field] != "other"
    assert (await client.get(f"{CONFIG_MAPS}/one")) == created


async def test_generated_names_are_the_same_in_reviews_and_results(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    configure(cluster, webhook(hooks.on("/", allow)))
    created = await client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
    )
    assert hooks.requests()[0]["object"]["metadata"]["name"] == created["metadata"]["name"]
    assert len(hooks.reviews) == 1


async def test_a_status_may_be_patched_but_nothing_else_with_it(
    cluster: LocalCluster, client: Client, hooks: Hooks, kexes: str
) -> None:
    await client.create(kexes, make_kex())
    rule = {"operations": ["UPDATE"], "apiGroups": ["example.com"], "apiVersions": ["*"], "resources": ["kexes/status"]}
    configure(
        cluster, webhook(hooks.on("/", patch(add("/status/b", 2), add("/spec/c", 3))), rules=[rule]), mutating=True
    )
    await client.patch(f"{kexes}/one", {"spec": {"x": 1}})
    assert not hooks.reviews
    patched = await client.patch(f"{kexes}/one/status", {"status": {"a": 1}})
    assert hooks.requests()[0]["subResource"] == "status"
    assert (patched["spec"], patched["status"]) == ({"x": 1}, {"a": 1, "b": 2})


async def test_concurrent_changes_are_reviewed_anew(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={}))
    entered, go = asyncio.Event(), asyncio.Event()

    async def wait(review: Obj) -> Obj:
        entered.set()
        await go.wait()
        return respond(review)

    configure(cluster, webhook(hooks.on("/", wait)))
    slow = asyncio.create_task(client.patch(f"{CONFIG_MAPS}/one", {"data": {"slow": "1"}}))
    await entered.wait()
    cluster.apply(make_config_map(data={"fast": "1"}), admission=False)
    go.set()
    assert (await slow)["data"] == {"fast": "1", "slow": "1"}
    assert [request["object"]["data"] for request in hooks.requests()] == [{"slow": "1"}, {"fast": "1", "slow": "1"}]


async def test_concurrent_changes_conflict_if_the_version_is_given(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    created = await client.create(CONFIG_MAPS, make_config_map(data={}))

    def interfere(review: Obj) -> Obj:
        cluster.apply(make_config_map(data={"fast": "1"}), admission=False)
        return respond(review)

    configure(cluster, webhook(hooks.on("/", interfere)))
    reply = await client.call("PUT", f"{CONFIG_MAPS}/one", json={**created, "data": {"slow": "1"}})
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")


async def test_deleted_objects_cannot_be_patched(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    configure(cluster, webhook(hooks.on("/", patch(add("/data", {"a": "b"})))), mutating=True)
    reply = await client.call("DELETE", f"{CONFIG_MAPS}/one")
    assert (reply.status, reply.body["message"]) == (
        500,
        'Internal error occurred: admission webhook "x.example.com" attempted to modify the object, '
        "which is not supported for this operation",
    )


# ------------------------------------------------------------------------------------------ who is asked


@pytest.mark.parametrize(
    ("rule", "called"),
    [
        ({}, True),
        ({"operations": ["CREATE"]}, True),
        ({"operations": ["UPDATE", "DELETE"]}, False),
        ({"apiGroups": ["*"]}, True),
        ({"apiGroups": ["apps"]}, False),
        ({"apiVersions": ["*"]}, True),
        ({"apiVersions": ["v2"]}, False),
        ({"resources": ["*"]}, True),
        ({"resources": ["*/*"]}, True),
        ({"resources": ["configmaps/*"]}, True),
        ({"resources": ["*/status"]}, False),
        ({"resources": ["pods", "secrets"]}, False),
        ({"scope": "*"}, True),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
    ],
)
async def test_rules_say_who_is_asked(
    cluster: LocalCluster, client: Client, hooks: Hooks, rule: Obj, called: bool
) -> None:
    configure(cluster, webhook(hooks.on("/", allow), rules=[{**CONFIG_MAP_RULE, **rule}]))
    await client.create(CONFIG_MAPS, make_config_map())
    assert bool(hooks.reviews) is called


@pytest.mark.parametrize(
    ("selector", "called"),
    [
        ({"matchLabels": {"a": "b"}}, True),
        ({"matchLabels": {"a": "c"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b", "c"]}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
    ],
)
@pytest.mark.parametrize("where", ["objectSelector", "namespaceSelector"])
async def test_selectors_say_who_is_asked(
    cluster: LocalCluster, client: Client, hooks: Hooks, selector: Obj, called: bool, where: str
) -> None:
    labels = {"labels": {"a": "b"}}
    if where == "namespaceSelector":
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", **labels}})
    selectors: Obj = {where: selector}
    configure(cluster, webhook(hooks.on("/", allow), **selectors))
    await client.create(CONFIG_MAPS, make_config_map(metadata=labels if where == "objectSelector" else {}))
    assert bool(hooks.reviews) is called


async def test_objects_are_selected_by_either_state(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    await client.create(CONFIG_MAPS, make_config_map(metadata={"labels": {"a": "b"}}))
    configure(cluster, webhook(hooks.on("/", allow), objectSelector={"matchLabels": {"a": "b"}}))
    await client.patch(f"{CONFIG_MAPS}/one", {"metadata": {"labels": {"a": None}}})
    await client.patch(f"{CONFIG_MAPS}/one", {"metadata": {"labels": {"x": "y"}}})
    assert len(hooks.reviews) == 1


async def test_namespaces_are_selected_by_their_own_labels(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    rule = {**CONFIG_MAP_RULE, "resources": ["namespaces"]}
    configure(cluster, webhook(hooks.on("/", allow), rules=[rule], namespaceSelector={"matchLabels": {"a": "b"}}))
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}})
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two", "labels": {"a": "b"}}}
    )
    assert [request["name"] for request in hooks.requests()] == ["two"]


@pytest.mark.parametrize(("policy", "called"), [("Equivalent", True), ("Exact", False)])
async def test_equivalent_versions_are_matched_by_policy(
    cluster: LocalCluster, client: Client, hooks: Hooks, policy: str, called: bool
) -> None:
    definition = make_definition()
    version = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**version, "name": "v2", "storage": False})
    cluster.apply(definition)
    rule = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["kexes"]}
    change = hooks.on("/", patch(add("/spec/a", 1)))
    configure(cluster, webhook(change, rules=[rule], matchPolicy=policy), mutating=True)
    created = await client.create(
        "/apis/example.com/v2/namespaces/default/kexes", {**make_kex(), "apiVersion": "example.com/v2"}
    )
    assert created["apiVersion"] == "example.com/v2"
    assert created["spec"] == ({"a": 1} if called else {})
    if called:
        (request,) = hooks.requests()
        assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v1", "v2")
        assert request["object"]["apiVersion"] == "example.com/v1"


@pytest.mark.parametrize(
    ("expression", "called"),
    [
        ("true", True),
        ("object.data.a == 'b'", True),
        ("object.data.a == 'c'", False),
        ("request.operation == 'CREATE' && oldObject == null", True),
        ("request.resource.resource == 'pods'", False),
    ],
)
async def test_match_conditions_say_who_is_asked(
    cluster: LocalCluster, client: Client, hooks: Hooks, expression: str, called: bool
) -> None:
    conditions = [{"name": "first", "expression": "true"}, {"name": "second", "expression": expression}]
    configure(cluster, webhook(hooks.on("/", allow), matchConditions=conditions))
    await client.create(CONFIG_MAPS, make_config_map(data={"a": "b"}))
    assert bool(hooks.reviews) is called


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_failed_match_conditions_go_by_the_policy(
    cluster: LocalCluster, client: Client, hooks: Hooks, policy: str, status: int
) -> None:
    condition = {"name": "first", "expression": "object.data.absent == 'x'"}
    configure(cluster, webhook(hooks.on("/", allow), matchConditions=[condition], failurePolicy=policy))
    assert (await client.call("POST", CONFIG_MAPS, json=make_config_map(data={}))).status == status
    assert not hooks.reviews


# ------------------------------------------------------------------------------------------ failures


def break_with(kind: str) -> Any:
    return {
        "500": lambda review: {"#status": 500},
        "404": lambda review: {"#status": 404},
        "uid": lambda review: {**respond(review), "response": {"uid": "other", "allowed": True}},
        "empty": lambda review: {},
        "kind": lambda review: {**respond(review), "apiVersion": "v1"},
        "patch": lambda review: respond(review, patchType="JSONPatch", patch="!"),
        "path": patch({"op": "remove", "path": "/absent/field"}),
        "type": lambda review: respond(review, patchType="Merge", patch=base64.b64encode(b"{}").decode()),
    }[kind]


@pytest.mark.parametrize("kind", ["500", "404", "uid", "empty", "kind", "patch", "path", "type"])
async def test_failures_go_by_the_policy(cluster: LocalCluster, client: Client, hooks: Hooks, kind: str) -> None:
    config = hooks.on("/", break_with(kind))
    configure(cluster, webhook(config, failurePolicy="Fail"), mutating=True)
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map())
    assert (reply.status, reply.body["reason"]) == (500, "InternalError")
    assert 'Internal error occurred: failed calling webhook "x.example.com": ' in reply.body["message"]
    configure(cluster, webhook(config, failurePolicy="Ignore"), mutating=True)
    await client.create(CONFIG_MAPS, make_config_map())


async def test_nobody_listening_is_a_failure(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    port = find_free_port()
    configure(cluster, webhook({"url": f"https://127.0.0.1:{port}/x", "caBundle": hooks.bundle}))
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map(), expected=500)
    assert reply.body["message"].startswith(
        'Internal error occurred: failed calling webhook "x.example.com": failed to call webhook: '
        f'Post "https://127.0.0.1:{port}/x?timeout=10s": '
    )


@pytest.mark.fastforward
async def test_slow_webhooks_time_out(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    over = asyncio.Event()

    async def hang(review: Obj) -> Obj:
        await over.wait()
        return respond(review)

    configure(cluster, webhook(hooks.on("/", hang), timeoutSeconds=1))
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map(), expected=500)
    over.set()
    assert reply.body["message"].endswith('?timeout=1s": context deadline exceeded')


async def test_certificates_of_others_are_not_trusted(
    cluster: LocalCluster, client: Client, hooks: Hooks, tmp_path: pathlib.Path
) -> None:
    async with serve_hooks(tmp_path, "localhost") as others:
        configure(cluster, webhook({**hooks.on("/", allow), "caBundle": others.bundle}))
        reply = await client.call("POST", CONFIG_MAPS, json=make_config_map())
    assert reply.status == 500
    assert "tls: failed to verify certificate: x509: " in reply.body["message"]
    assert not hooks.reviews


async def test_only_https_is_called(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    with pytest.raises(Exception, match="'https' is the only allowed URL scheme"):
        configure(cluster, webhook({"url": f"http://127.0.0.1:{hooks.port}/"}))
    await client.create(CONFIG_MAPS, make_config_map())
    assert not hooks.reviews


async def test_services_are_called_at_registered_addresses(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    hooks.on("/check", allow)
    config = {"service": {"namespace": "ops", "name": "hooks", "path": "/check"}, "caBundle": hooks.bundle}
    configure(cluster, webhook(config))
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map())
    assert 'Post "https://hooks.ops.svc:443/check?timeout=10s": service "hooks" not found' in reply.body["message"]
    cluster.register_service("ops", "hooks", "127.0.0.1", hooks.port)
    await client.create(CONFIG_MAPS, make_config_map())
    assert len(hooks.reviews) == 1
    cluster.register_service("ops", "other", "127.0.0.1", hooks.port)  # the certificate is not for this name
    configure(cluster, webhook({"service": {"namespace": "ops", "name": "other"}, "caBundle": hooks.bundle}))
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map("two"))
    assert "tls: failed to verify certificate" in reply.body["message"]


# ------------------------------------------------------------------------------------------ dry runs


@pytest.mark.parametrize("effects", ["None", "NoneOnDryRun"])
async def test_dry_runs_are_reviewed_as_such(cluster: LocalCluster, client: Client, hooks: Hooks, effects: str) -> None:
    configure(cluster, webhook(hooks.on("/", allow), sideEffects=effects))
    await client.call("POST", f"{CONFIG_MAPS}?dryRun=All", json=make_config_map(), expected=201)
    assert hooks.requests()[0]["dryRun"] is True
    assert hooks.requests()[0]["options"]["dryRun"] == ["All"]
    assert (await client.get(CONFIG_MAPS))["items"] == []


@pytest.mark.parametrize("effects", ["Some", "Unknown", None])
async def test_webhooks_that_cannot_take_part_in_dry_runs_are_refused(
    cluster: LocalCluster, hooks: Hooks, effects: str | None
) -> None:
    with pytest.raises(Exception, match=r"webhooks\[0\]\.sideEffects"):
        configure(cluster, webhook(hooks.on("/", allow), sideEffects=effects))


# ------------------------------------------------------------------------------------------ the audit


async def test_calls_are_remembered_with_their_outcomes(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    change = patch(add("/data", {"a": "b"}))
    configure(
        cluster,
        webhook(
            hooks.on("/m", lambda review: (change if review["request"]["operation"] == "CREATE" else allow)(review))
        ),
        mutating=True,
        name="first",
    )
    configure(
        cluster,
        webhook(
            hooks.on(
                "/v",
                lambda review: respond(
                    review, auditAnnotations={"why": "so"}, allowed=review["request"]["operation"] == "CREATE"
                ),
            )
        ),
        name="second",
    )
    await client.create(CONFIG_MAPS, make_config_map())
    await client.call("DELETE", f"{CONFIG_MAPS}/one")
    assert [
        (
            call.configuration,
            call.mutating,
            call.operation,
            call.resource,
            call.namespace,
            call.name,
            call.allowed,
            call.patched,
            dict(call.audit_annotations),
        )
        for call in cluster.admission_calls
    ] == [
        ("first", True, "CREATE", "configmaps", "default", "one", True, True, {}),
        ("second", False, "CREATE", "configmaps", "default", "one", True, False, {"why": "so"}),
        ("first", True, "DELETE", "configmaps", "default", "one", True, False, {}),
        ("second", False, "DELETE", "configmaps", "default", "one", False, False, {"why": "so"}),
    ]


async def test_failed_calls_are_remembered_with_their_errors(
    cluster: LocalCluster, client: Client, hooks: Hooks
) -> None:
    configure(cluster, webhook(hooks.on("/", break_with("404")), failurePolicy="Ignore"))
    await client.create(CONFIG_MAPS, make_config_map())
    (call,) = cluster.admission_calls
    assert (call.allowed, call.error) == (True, "the server could not find the requested resource")


async def test_webhooks_may_call_the_cluster_themselves(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    async def look(review: Obj) -> Obj:
        found = (await client.get(CONFIG_MAPS))["items"]
        return respond(review, allowed=not found, status={"message": "there is one already"})

    configure(cluster, webhook(hooks.on("/", look)))
    await client.create(CONFIG_MAPS, make_config_map("one"))
    assert "there is one already" in json.dumps(
        (await client.call("POST", CONFIG_MAPS, json=make_config_map("two"))).body
    )


async def test_patches_of_all_types_are_reviewed(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={}))
    configure(cluster, webhook(hooks.on("/", allow)))
    await client.patch(f"{CONFIG_MAPS}/one", {"data": {"a": "1"}}, MERGE)
    await client.patch(f"{CONFIG_MAPS}/one", [add("/data/b", "2")], JSON)
    assert [request["object"]["data"] for request in hooks.requests()] == [{"a": "1"}, {"a": "1", "b": "2"}]


# ------------------------------------------------------------------------------------------ scales

SCALE_RULE = {
    "operations": ["UPDATE"],
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "resources": ["deployments/scale"],
}
LABELS = {"app": "web"}
DEPLOYMENT: Obj = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    },
}


async def test_scales_are_reviewed_and_changed_as_such(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    created = await client.create(DEPLOYMENTS, DEPLOYMENT)
    change = patch({"op": "replace", "path": "/spec/replicas", "value": 7})
    configure(cluster, webhook(hooks.on("/", change), rules=[SCALE_RULE]), mutating=True)
    scale = await client.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 5}})
    assert scale["spec"] == {"replicas": 7}
    (request,) = hooks.requests()
    assert request["kind"] == request["requestKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (request["resource"]["resource"], request["subResource"]) == ("deployments", "scale")
    assert (request["oldObject"]["spec"], request["object"]["spec"]) == ({"replicas": 1}, {"replicas": 5})
    assert (request["object"]["kind"], request["object"]["apiVersion"]) == ("Scale", "autoscaling/v1")
    obj = await client.get(f"{DEPLOYMENTS}/web")
    assert obj["spec"] == {**created["spec"], "replicas": 7}
    assert (obj["kind"], obj["apiVersion"]) == ("Deployment", "apps/v1")


# ------------------------------------------------------------------------------------------ unknown fields


async def test_unknown_fields_are_warned_of_once(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    configure(cluster, webhook(hooks.on("/", patch(add("/alien", 7)))), mutating=True)
    for method, path, headers in (("POST", CONFIG_MAPS, {}), ("PATCH", f"{CONFIG_MAPS}/one", {"Content-Type": MERGE})):
        body = {**make_config_map(data={"a": method}), "foreign": 1}
        reply = await client.call(
            method, path, data=json.dumps(body), headers={"Content-Type": "application/json", **headers}
        )
        assert reply.headers["Warning"] == '299 - "unknown field \\"foreign\\""'
        assert {"alien", "foreign"}.isdisjoint(reply.body)
