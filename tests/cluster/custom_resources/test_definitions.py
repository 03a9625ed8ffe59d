from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CRDS, KEXES, Client, causes, make_definition, make_kex

SPEC = ["spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec"]
IN_SPEC = "spec.validation.openAPIV3Schema.properties[spec]"


async def wait_established(client: Client, name: str = "kexes.example.com") -> Any:
    return await client.wait(f"{CRDS}/{name}", lambda obj: obj["status"]["conditions"])


async def test_defined_kinds_are_served_at_once(client: Client) -> None:
    assert (await client.call("GET", KEXES)).status == 404
    await client.create(CRDS, make_definition())
    await client.create(KEXES, make_kex())


SCALE = {"scale": {"specReplicasPath": "x", "statusReplicasPath": ".status.x"}}
OTHER_SCALE = {**SCALE, "status": {}}
WRONG, OTHER_WRONG = (
    {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": t}}}} for t in ("text", "odd")
)
WRONG_DEFAULT = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}}
GOOD = {"openAPIV3Schema": {"type": "object"}}
COLUMNS, OTHER_COLUMNS = ([{"name": name, "type": "string", "jsonPath": ".a["}] for name in "xy")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"schema": WRONG}, {"schema": WRONG}, ["spec.validation.openAPIV3Schema.properties[a].type"]),
        (
            {"schema": WRONG_DEFAULT},
            {"schema": WRONG_DEFAULT},
            ["spec.validation.openAPIV3Schema.properties[a].default"],
        ),
        ({"schema": WRONG}, {"schema": GOOD}, ["spec.versions[0].schema.openAPIV3Schema.properties[a].type"]),
        (
            {"schema": WRONG},
            {"schema": OTHER_WRONG},
            [f"spec.versions[{i}].schema.openAPIV3Schema.properties[a].type" for i in (0, 1)],
        ),
        ({"schema": {}}, {"schema": {}}, [f"spec.versions[{i}].schema.openAPIV3Schema" for i in (0, 1)]),
        ({"subresources": SCALE}, {"subresources": SCALE}, ["spec.subresources.scale.specReplicasPath"]),
        (
            {"subresources": SCALE},
            {"subresources": OTHER_SCALE},
            [f"spec.versions[{i}].subresources.scale.specReplicasPath" for i in (0, 1)],
        ),
        (
            {"additionalPrinterColumns": COLUMNS},
            {"additionalPrinterColumns": COLUMNS},
            ["spec.additionalPrinterColumns[0].JSONPath"],
        ),
        (
            {"additionalPrinterColumns": COLUMNS},
            {"additionalPrinterColumns": OTHER_COLUMNS},
            [f"spec.versions[{i}].additionalPrinterColumns[0].JSONPath" for i in (0, 1)],
        ),
        (
            {"schema": WRONG, "subresources": SCALE},
            {"schema": WRONG, "subresources": OTHER_SCALE},
            [
                "spec.validation.openAPIV3Schema.properties[a].type",
                *[f"spec.versions[{i}].subresources.scale.specReplicasPath" for i in (0, 1)],
            ],
        ),
    ],
)
async def test_errors_in_common_parts_of_versions_are_named_once(
    client: Client, first: dict[str, Any], second: dict[str, Any], expected: list[str]
) -> None:
    """As a real server (1.20) does: it keeps what all versions have in common outside of them."""
    definition = make_definition(schema=GOOD, subresources={})
    common = definition["spec"]["versions"][0]
    other = {**common, "name": "v2", "storage": False}
    definition["spec"]["versions"] = [{**common, **first}, {**other, **second}]
    reply = await client.call("POST", CRDS, json=definition)
    assert (reply.status, sorted(field for field, _ in causes(reply))) == (422, sorted(expected))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            {"type": "odd"},
            'type: Invalid value: "odd": must be one of boolean,date,integer,number,string',
        ),
        ({"type": ""}, "type: Required value: must be one of boolean,date,integer,number,string"),
        ({"name": ""}, "name: Required value"),
        ({"jsonPath": "spec.x"}, 'JSONPath: Invalid value: "spec.x": must be a simple json path starting with .'),
        ({"jsonPath": "['x']"}, """JSONPath: Invalid value: "['x']": must be a simple json path starting with ."""),
        (
            {"format": "odd"},
            'format: Invalid value: "odd": must be one of byte,date,date-time,double,float,int32,int64,password',
        ),
    ],
)
async def test_wrong_columns_are_invalid(client: Client, column: dict[str, str], expected: str) -> None:
    """In the words of a real server (1.20)."""
    columns = [{"name": "a", "type": "string", "format": "int32", "jsonPath": ".x", **column}]
    reply = await client.call("POST", CRDS, json=make_definition(additionalPrinterColumns=columns))
    assert (reply.status, reply.body["message"]) == (
        422,
        f'CustomResourceDefinition.apiextensions.k8s.io "kexes.example.com" is invalid: '
        f"spec.additionalPrinterColumns[0].{expected}",
    )


async def test_definitions_are_completed_and_established(client: Client) -> None:
    await client.create(CRDS, make_definition())
    definition = await wait_established(client)
    names = {"plural": "kexes", "singular": "kex", "kind": "Kex", "listKind": "KexList"}
    assert definition["spec"]["names"] == names
    assert definition["spec"]["conversion"] == {"strategy": "None"}
    assert definition["status"]["acceptedNames"] == names
    assert definition["status"]["storedVersions"] == ["v1"]
    conditions = {item["type"]: item["status"] for item in definition["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (["metadata", "name"], "x.example.com", [("metadata.name", "FieldValueInvalid")]),
        (["spec", "scope"], "Galaxy", [("spec.scope", "FieldValueNotSupported")]),
        (["spec", "scope"], "", [("spec.scope", "FieldValueRequired")]),
        (["spec", "versions"], [], [("spec.versions", "FieldValueRequired")]),
        (["spec", "versions", 0, "storage"], False, [("spec.versions", "FieldValueInvalid")]),
        (["spec", "versions", 0, "schema"], None, [("spec.versions[0].schema.openAPIV3Schema", "FieldValueRequired")]),
        (
            ["spec", "versions", 0, "schema", "openAPIV3Schema"],
            {"type": "string"},
            [("spec.validation.openAPIV3Schema.type", "FieldValueInvalid")],
        ),
        (
            SPEC,
            {},
            [(f"{IN_SPEC}.type", "FieldValueRequired")],
        ),
        (
            SPEC,
            {"type": "text"},
            [(f"{IN_SPEC}.type", "FieldValueNotSupported")],
        ),
        (
            SPEC,
            {"type": "string", "pattern": "("},
            [(f"{IN_SPEC}.pattern", "FieldValueInvalid")],
        ),
        (
            ["spec", "versions", 0, "additionalPrinterColumns"],
            [{"name": "A", "type": "string", "jsonPath": ".a["}],
            [("spec.additionalPrinterColumns[0].JSONPath", "FieldValueInvalid")],
        ),
        (["spec", "conversion"], {"strategy": "Other"}, [("spec.conversion.strategy", "FieldValueNotSupported")]),
        (["spec", "conversion"], {}, [("spec.conversion.strategy", "FieldValueRequired")]),
        (
            ["spec", "versions", 0, "additionalPrinterColumns"],
            [{"name": "x", "type": "string"}],
            [("spec.additionalPrinterColumns[0].JSONPath", "FieldValueRequired")],
        ),
        (
            ["spec", "versions", 0, "selectableFields"],
            [{}],
            [("spec.versions[0].selectableFields[0].jsonPath", "FieldValueRequired")],
        ),
        (
            SPEC,
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            [(f"{IN_SPEC}.additionalProperties", "FieldValueForbidden")],
        ),
        # Defaults must fit the schema.
        (SPEC, {"type": "string", "default": 0.5}, [(f"{IN_SPEC}.default", "FieldValueTypeInvalid")]),
        (
            SPEC,
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "default": 1}}},
            [(f"{IN_SPEC}.properties[a].default", "FieldValueInvalid")],
        ),
        (SPEC, {"type": "string", "enum": ["a"], "default": "b"}, [(f"{IN_SPEC}.default", "FieldValueNotSupported")]),
        (
            SPEC,
            {"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}},
            [(f"{IN_SPEC}.default", "FieldValueInvalid")],
        ),
    ],
)
async def test_wrong_definitions_are_invalid(
    client: Client,
    path: list[Any],
    value: Any,
    expected: list[tuple[str, str]],
) -> None:
    reply = await client.call("POST", CRDS, json=spoil(path, value))
    assert causes(reply) == expected
    assert (await client.call("GET", KEXES)).status == 404


def spoil(path: list[Any], value: Any) -> Any:
    definition: Any = make_definition()
    place = definition
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return definition


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (["spec", "versions"], 5, "number into the field spec.versions of type []v1.CustomResourceDefinitionVersion"),
        (["spec", "names", "shortNames"], "kx", "string into the field spec.names.shortNames of type []string"),
        (SPEC, {"type": "integer", "minimum": "many"}, "of type float64"),
        (SPEC, {"type": "array", "items": []}, "of type v1.JSONSchemaPropsOrArray"),
        (SPEC, {"type": "array", "items": {"type": 5}}, "number into the field "),
        (SPEC, {"type": "object", "additionalProperties": "x"}, "of type v1.JSONSchemaPropsOrBool"),
        (SPEC, {"type": "object", "additionalProperties": {"nullable": "x"}}, "of type bool"),
    ],
)
async def test_mistyped_definitions_are_refused(client: Client, path: list[Any], value: Any, why: str) -> None:
    reply = await client.call("POST", CRDS, json=spoil(path, value))
    assert (reply.status, why in reply.body["message"]) == (400, True), reply


async def test_what_is_unknown_in_schemas_is_lost_at_any_depth(client: Client) -> None:
    items = {"type": "object", "additionalProperties": {"type": "string", "alien": 1}, "alien": 1}
    await client.create(CRDS, spoil(SPEC, {"type": "array", "items": items}))
    definition = await client.get(f"{CRDS}/kexes.example.com")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["items"] == {"type": "object", "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize("conditions", [[{}], [{"status": "True"}], [{"type": "Terminating"}], [None]])
async def test_spoiled_conditions_do_not_hold_the_deletion(client: Client, conditions: list[Any]) -> None:
    await client.create(CRDS, make_definition())
    await wait_established(client)
    await client.patch(f"{CRDS}/kexes.example.com/status", {"status": {"conditions": conditions}})
    await client.create(KEXES, make_kex(metadata={"finalizers": ["example.com/hold"]}))
    await client.delete(f"{CRDS}/kexes.example.com")
    await client.wait(f"{KEXES}/one", lambda obj: "deletionTimestamp" in obj["metadata"])
    await client.patch(f"{KEXES}/one", {"metadata": {"finalizers": None}})
    await client.wait_gone(f"{CRDS}/kexes.example.com")


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": "x"},
        {"conditions": ["x"]},
        {"conditions": {"type": "x"}},
        {"conditions": [{"type": 5}]},
        {"storedVersions": [{}]},
        {"storedVersions": [["v1"]]},
        {"storedVersions": 5},
        {"acceptedNames": []},
        "x",
    ],
)
async def test_mistyped_statuses_are_refused(client: Client, status: Any) -> None:
    await client.create(CRDS, make_definition())
    reply = await client.send_patch(f"{CRDS}/kexes.example.com/status", {"status": status}, expected=422)
    assert "json: cannot unmarshal" in reply.body["message"]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"deprecationWarning": "x"}, "can only be set for deprecated versions"),
        ({"deprecated": True, "deprecationWarning": ""}, "must not be an empty string"),
        ({"deprecated": True, "deprecationWarning": "x" * 257}, "must be <= 256 characters long"),
        (
            {"deprecated": True, "deprecationWarning": "é\n"},
            "must only contain printable UTF-8 characters; non-printable character found at index 2",
        ),
    ],
)
async def test_wrong_deprecations(client: Client, extra: Any, expected: str) -> None:
    reply = await client.call("POST", CRDS, json=make_definition(**extra))
    assert causes(reply) == [("spec.versions[0].deprecationWarning", "FieldValueInvalid")]
    assert reply.body["message"].endswith(expected)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"deprecated": True}, "example.com/v1 Kex is deprecated; use example.com/v3 Kex"),
        ({"deprecated": True, "deprecationWarning": 'go "away"'}, 'go \\"away\\"'),
        ({"deprecated": False}, None),
    ],
)
async def test_deprecated_versions_are_warned_of(client: Client, extra: Any, expected: str | None) -> None:
    definition = make_definition(**extra)
    [first] = definition["spec"]["versions"]
    for name, more in (("v0", {}), ("v2", {}), ("v3", {}), ("v4", {"served": False}), ("v5", {"deprecated": True})):
        newer = {**first, "name": name, "storage": False, "deprecated": False, **more}
        newer.pop("deprecationWarning", None)
        definition["spec"]["versions"].append(newer)
    await client.create(CRDS, definition)
    replies = [
        await client.call("POST", KEXES, json=make_kex(spec={"x": 1}, kind="Kex")),
        await client.call("GET", KEXES),
        await client.call("GET", f"{KEXES}/one"),
        await client.call("GET", f"{KEXES}/nosuch"),
        await client.send_patch(f"{KEXES}/one/status", {"status": {}}),
    ]
    wanted = None if expected is None else f'299 - "{expected}"'
    assert [reply.headers.get("Warning") for reply in replies] == [wanted] * 5
    async with client.session.get(KEXES, params={"watch": "1"}) as response:
        assert response.headers.get("Warning") == wanted
    newest = await client.call("GET", KEXES.replace("v1", "v5"))
    assert newest.headers["Warning"] == '299 - "example.com/v5 Kex is deprecated"'
    assert "Warning" not in (await client.call("GET", KEXES.replace("v1", "v2"))).headers


async def test_deprecations_and_unknown_fields_are_warned_of_at_once(client: Client) -> None:
    await client.create(CRDS, make_definition(deprecated=True, spec={"type": "object", "properties": {}}))
    reply = await client.call("POST", KEXES, json=make_kex(spec={"alien": 1}))
    assert reply.headers["Warning"] == (
        '299 - "example.com/v1 Kex is deprecated", 299 - "unknown field \\"spec.alien\\""'
    )


async def test_the_scope_is_immutable(client: Client) -> None:
    await client.create(CRDS, make_definition())
    reply = await client.send_patch(f"{CRDS}/kexes.example.com", {"spec": {"scope": "Cluster"}})
    assert causes(reply) == [("spec.scope", "FieldValueInvalid")]


async def test_cluster_wide_kinds(client: Client) -> None:
    await client.create(CRDS, make_definition(scope="Cluster"))
    obj = await client.create("/apis/example.com/v1/kexes", make_kex())
    assert "namespace" not in obj["metadata"]
    assert (await client.call("GET", KEXES)).status == 404


async def test_schemas_are_enforced(client: Client) -> None:
    await client.create(
        CRDS,
        make_definition(
            spec={
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "color": {"type": "string", "default": "red"},
                },
            }
        ),
    )
    obj = await client.create(KEXES, make_kex(spec={"size": 1, "alien": True}))
    assert obj["spec"] == {"size": 1, "color": "red"}
    reply = await client.send_patch(f"{KEXES}/one", {"spec": {"size": 0}})
    assert causes(reply) == [("spec.size", "FieldValueInvalid")]
    assert reply.body["message"] == (
        'Kex.example.com "one" is invalid: spec.size: Invalid value: 0: '
        "spec.size in body should be greater than or equal to 1"
    )
    reply = await client.call("POST", KEXES, json=make_kex("two"))
    assert causes(reply) == [("spec.size", "FieldValueRequired")]
    assert await client.get(f"{KEXES}/one") == obj


async def test_schemas_can_tell_of_the_head_of_objects(client: Client) -> None:
    definition = make_definition()
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["required"] = ["apiVersion", "kind", "metadata", "spec"]
    root["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
    }
    await client.create(CRDS, definition)
    obj = await client.create(KEXES, make_kex())
    await client.patch(f"{KEXES}/one", {"spec": {"x": 1}})
    reply = await client.call("POST", KEXES, json=make_kex("too-long"))
    assert reply.body["message"] == (
        'Kex.example.com "too-long" is invalid: metadata.name: Too long: may not be more than 5 bytes'
    )
    reply = await client.call("POST", KEXES, json={**make_kex("two"), "spec": None})
    assert reply.body["message"] == 'Kex.example.com "two" is invalid: spec: Required value'
    assert obj["metadata"]["name"] == "one"


async def test_unknown_fields_are_warned_of_or_refused(client: Client) -> None:
    await client.create(CRDS, make_definition(spec={"type": "object", "properties": {}}))
    reply = await client.call("POST", KEXES, json=make_kex(spec={'al"ien': 1, "a\nb": 1}), expected=201)
    assert reply.headers.getall("Warning") == [r'299 - "unknown field \"spec.al\"ien\""']  # none with \n
    reply = await client.call(
        "POST", f"{KEXES}?fieldValidation=Strict", json=make_kex("two", spec={"alien": 1}), expected=400
    )
    assert reply.body["message"] == (
        'Kex in version "v1" cannot be handled as a Kex: strict decoding error: unknown field "spec.alien"'
    )
    reply = await client.call(
        "POST", f"{KEXES}?fieldValidation=Ignore", json=make_kex("two", spec={"alien": 1}), expected=201
    )
    assert "Warning" not in reply.headers
    assert (await client.call("POST", f"{KEXES}?fieldValidation=Nosuch", json=make_kex("three"))).status == 422


async def test_old_objects_are_shown_as_the_new_schema_wants_them(cluster: LocalCluster, client: Client) -> None:
    text = {"type": "string"}
    loose = make_definition(spec={"type": "object", "properties": {"old": text}})
    strict = make_definition(spec={"type": "object", "properties": {"new": {**text, "default": "yes"}}})
    await client.create(CRDS, loose)
    made = await client.create(KEXES, make_kex(spec={"old": "x"}))
    await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": strict["spec"]["versions"]}})
    shown = {**made, "spec": {"new": "yes"}}
    assert await client.get(f"{KEXES}/one") == shown
    assert (await client.get(KEXES))["items"] == [shown]
    async with client.watch(KEXES) as stream:
        event = await stream.next()
        assert event["object"] == shown
        # Nothing of this is stored, until somebody writes the object.
        await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": loose["spec"]["versions"]}})
        assert await client.get(f"{KEXES}/one") == made
    await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": strict["spec"]["versions"]}})
    await client.patch(f"{KEXES}/one", {"metadata": {"labels": {"a": "b"}}})
    await cluster.restart_async()
    await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": make_definition()["spec"]["versions"]}})
    assert (await client.get(f"{KEXES}/one"))["spec"] == {"new": "yes"}


async def test_new_defaults_are_there_after_a_restart(cluster: LocalCluster, client: Client) -> None:
    await client.create(CRDS, make_definition())
    await client.create(KEXES, make_kex())
    strict = make_definition(spec={"type": "object", "properties": {"new": {"type": "string", "default": "yes"}}})
    await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": strict["spec"]["versions"]}})
    await cluster.restart_async()
    assert (await client.get(f"{KEXES}/one"))["spec"] == {"new": "yes"}


async def test_versions_show_the_same_objects(client: Client) -> None:
    definition = make_definition()
    definition["spec"]["versions"].append({**definition["spec"]["versions"][0], "name": "v2beta1", "storage": False})
    definition["spec"]["versions"].append(
        {**definition["spec"]["versions"][0], "name": "v0", "storage": False, "served": False}
    )
    await client.create(CRDS, definition)
    await client.create(KEXES, make_kex(spec={"a": 1}))
    newer = KEXES.replace("/v1/", "/v2beta1/")
    obj = await client.get(f"{newer}/one")
    assert (obj["apiVersion"], obj["spec"]) == ("example.com/v2beta1", {"a": 1})
    async with client.watch(newer) as stream:
        event = await stream.next()
        assert event["object"]["apiVersion"] == "example.com/v2beta1"
    assert (await client.call("GET", KEXES.replace("/v1/", "/v0/"))).status == 404


async def test_changed_definitions_apply_to_new_writes(client: Client) -> None:
    await client.create(CRDS, make_definition())
    await client.create(KEXES, make_kex(spec={"a": 1}))
    path = f"{CRDS}/kexes.example.com"
    definition = await wait_established(client)
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object",
        "properties": {"b": {"type": "string"}},
    }
    assert (await client.call("PUT", path, json=definition)).status == 200
    assert (await client.get(f"{KEXES}/one"))["spec"] == {}
    assert (await client.patch(f"{KEXES}/one", {"spec": {"b": "x"}}))["spec"] == {"b": "x"}
    assert (await client.get(path))["status"]["conditions"]


async def test_deleted_definitions_take_their_objects(client: Client) -> None:
    await client.create(CRDS, make_definition())
    await client.create(KEXES, make_kex())
    answer = await client.delete(f"{CRDS}/kexes.example.com")
    assert answer["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await client.wait_gone(f"{CRDS}/kexes.example.com")
    assert (await client.call("GET", KEXES)).status == 404
    await client.create(CRDS, make_definition())
    assert (await client.get(KEXES))["items"] == []


async def test_finalizers_of_objects_hold_the_definition(client: Client) -> None:
    await client.create(CRDS, make_definition())
    await client.create(KEXES, make_kex(metadata={"finalizers": ["a/b"]}))
    await client.delete(f"{CRDS}/kexes.example.com")
    await client.wait(f"{KEXES}/one", lambda obj: "deletionTimestamp" in obj["metadata"])
    reply = await client.call("POST", KEXES, json=make_kex("two"), expected=405)
    assert reply.body["message"] == "create not allowed while custom resource definition is terminating"
    conditions = (await client.get(f"{CRDS}/kexes.example.com"))["status"]["conditions"]
    assert {"Terminating": "True"}.items() <= {item["type"]: item["status"] for item in conditions}.items()
    await client.patch(f"{KEXES}/one", {"metadata": {"finalizers": []}})
    await client.wait_gone(f"{CRDS}/kexes.example.com")


async def test_names_are_accepted_once(client: Client) -> None:
    await client.create(CRDS, make_definition())
    other = make_definition("kexen")
    other["spec"]["names"]["shortNames"] = ["kexes"]
    await client.create(CRDS, other)
    conditions = (await wait_established(client, "kexen.example.com"))["status"]["conditions"]
    assert [(item["type"], item["status"], item["reason"]) for item in conditions] == [
        ("NamesAccepted", "False", "SingularConflict"),
        ("Established", "False", "NotAccepted"),
    ]
    assert conditions[0]["message"] == '"kex" is already in use'
    assert (await client.call("GET", KEXES.replace("kexes", "kexen"))).status == 404
    await client.delete(f"{CRDS}/kexes.example.com")
    await client.wait_gone(f"{CRDS}/kexes.example.com")
    await client.wait(KEXES.replace("kexes", "kexen"))
    await client.wait(f"{CRDS}/kexen.example.com", lambda obj: obj["status"]["conditions"][1]["status"] == "True")


async def test_versions_with_objects_must_stay(client: Client) -> None:
    definition = make_definition()
    await client.create(CRDS, definition)
    (await wait_established(client, "kexes.example.com"))["status"]["conditions"]
    versions = [{**definition["spec"]["versions"][0], "name": "v2"}]
    reply = await client.send_patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": versions}})
    assert causes(reply) == [("status.storedVersions[0]", "FieldValueInvalid")]


@pytest.mark.parametrize("conversion", [None, {"strategy": "None"}])
async def test_conversion_is_none_by_default(client: Client, conversion: Any) -> None:
    created = await client.create(CRDS, spoil(["spec", "conversion"], conversion))
    assert created["spec"]["conversion"] == {"strategy": "None"}
