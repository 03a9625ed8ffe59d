"""The local cluster and those of its users who are not its owners: none of them can stop it for the others."""

from __future__ import annotations

import asyncio
import os
import pathlib
import stat
import time
from typing import Any

import pytest
import yaml

from kopf_cluster import LocalCluster, yamls
from kopf_cluster.access.credentials import write_privately
from kopf_cluster.patterns import PatternError, compile_pattern
from tests.cluster.conftest import CONFIG_MAPS, JSON, STRATEGIC, Client, make_definition
from tests.patience import PATIENCE

SLOW_PATTERNS = ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y"]


@pytest.mark.parametrize("pattern", SLOW_PATTERNS)
def test_patterns_take_linear_time(pattern: str) -> None:
    started = time.process_time()
    for text in ("a" * 100_000 + "!", "x" * 100_000):
        compile_pattern(pattern).search(text)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1000}{1000}{1000}", "x" * 100_000])
def test_impossible_patterns_are_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)
    assert capfd.readouterr() == ("", "")


async def test_patterns_of_schemas_do_not_stop_the_others(cluster: LocalCluster, client: Client) -> None:
    field = {"type": "string", "pattern": SLOW_PATTERNS[0]}
    definition: dict[str, Any] = make_definition()
    version = definition["spec"]["versions"][0]
    version["schema"] = {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"field": field}}},
        }
    }
    cluster.apply(definition)
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    obj = {
        "apiVersion": f"{group}/{version['name']}",
        "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": "x"},
        "spec": {"field": "a" * 50 + "!"},
    }
    started = time.process_time()
    async with asyncio.timeout(PATIENCE):
        path = f"/apis/{group}/{version['name']}/namespaces/default/{plural}"
        await client.call("POST", path, json=obj, expected=422)
        assert await client.get(CONFIG_MAPS)
    assert time.process_time() - started < 5


def _make_bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


BOMBS = [
    _make_bomb(9),
    "a: &a [*a]",
    "a: &a {b: *a}",
    "\n".join(["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9))]),
    f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]",
    "[" * 5000,
    "a: 2020-99-99",
    "a: &a\n? [*a]\n: 1",
]


@pytest.mark.parametrize("text", BOMBS, ids=lambda text: repr(text[:30]))
async def test_bombs_of_aliases_are_refused(client: Client, text: str) -> None:
    started = time.process_time()
    async with asyncio.timeout(PATIENCE):
        reply = await client.call(
            "POST", CONFIG_MAPS, data=text.encode(), headers={"Content-Type": "application/yaml"}, expected=400
        )
        assert len(str(reply.body)) < 2000
        assert await client.get(CONFIG_MAPS)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("text", ["", "a: 1", "a: &x [1]\nb: [*x, *x]", "a: &x {b: 1}\nc: {<<: *x, d: 2}", "- 1"])
def test_usual_documents_are_as_they_are(text: str) -> None:
    assert yamls.load(text.encode()) == yaml.safe_load(text)


def test_private_files_are_not_written_through_links(tmp_path: pathlib.Path) -> None:
    target, path = tmp_path / "target", tmp_path / "kubeconfig"
    path.symlink_to(target)
    path.with_name(f".{path.name}.{os.getpid()}.tmp").symlink_to(target)
    write_privately(path, "secret")
    assert not target.exists()
    assert path.read_text() == "secret"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


async def test_the_data_are_private(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    for _ in range(2):
        async with LocalCluster(data_dir=tmp_path / "data"):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").glob("*.sqlite*")}
            assert modes
            assert set(modes.values()) == {0o600}, modes


JSON_BODY, YAML_BODY = {"Content-Type": "application/json"}, {"Content-Type": "application/yaml"}
CONFIG_MAP = '"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}'
YAML_HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"


async def test_copies_of_json_patches_are_limited(client: Client) -> None:
    await client.create(CONFIG_MAPS, {"metadata": {"name": "one"}, "data": {"a": "b"}})
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/x{n}"} for n in range(20)]
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", doubling, JSON)
    assert (reply.status, reply.body["reason"], len(str(reply.body)) < 1000) == (422, "Invalid", True)
    text = "x" * 1_000_000
    within = [
        {"op": "add", "path": "/data/y", "value": text},
        {"op": "copy", "from": "/data/y", "path": "/data/z"},
        {"op": "remove", "path": "/data/y"},
    ]
    assert (await client.patch(f"{CONFIG_MAPS}/one", within, JSON))["data"] == {"a": "b", "z": text}


@pytest.mark.parametrize(
    "fields",
    [
        ", ".join(f'"x{n}": 1' for n in range(1000)),
        ", ".join(['"x": 1'] + ['"data": {}'] * 1000),
        '"{}": {{{}}}'.format("k" * 100_000, ", ".join(['"q": 1'] * 5000)),
    ],
    ids=["unknown", "repeated", "long paths"],
)
@pytest.mark.parametrize("validation", ["Strict", "Warn"])
async def test_what_is_told_of_fields_is_limited(client: Client, fields: str, validation: str) -> None:
    reply = await client.call(
        "POST", f"{CONFIG_MAPS}?fieldValidation={validation}", data=f"{{{CONFIG_MAP}, {fields}}}", headers=JSON_BODY
    )
    assert reply.status == (400 if validation == "Strict" else 201)
    assert len(str(reply.body)) < 3_000_000
    assert len(reply.headers.get("Warning", "")) < 8000
    assert str(reply.body).count("field") <= 110


async def test_refusals_of_very_wrong_objects_are_limited(client: Client) -> None:
    reply = await client.call(
        "POST",
        CONFIG_MAPS,
        json={"metadata": {"name": "x"}, "data": {f"no key {n}": "" for n in range(3000)}},
        expected=422,
    )
    assert len(reply.body["details"]["causes"]) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        f"a: [{'1,' * 300_000}]",
        f"a: {'9' * 5000}",
    ],
    ids=["lists", "maps", "blocks", "values", "digits"],
)
async def test_yaml_is_limited(client: Client, text: str) -> None:
    reply = await client.call("POST", CONFIG_MAPS, data=text, headers=YAML_BODY)
    assert (reply.status, len(str(reply.body)) < 2000) == (400, True)


@pytest.mark.parametrize("query", ["", "?fieldValidation=Strict"])
async def test_others_are_answered_while_large_yaml_is_decoded(client: Client, query: str) -> None:
    text = YAML_HEAD + "data:\n" + "".join(f"  k{n}: '{n}'\n" for n in range(10_000))
    posting = asyncio.create_task(client.call("POST", f"{CONFIG_MAPS}{query}", data=text, headers=YAML_BODY))
    answered = 0
    while not posting.done():
        await client.get("/api")
        answered += 1
    reply = await posting
    assert (reply.status, len(reply.body["data"])) == (201, 10_000)
    assert answered > 3


async def test_errors_of_large_yaml_are_told(client: Client) -> None:
    text = YAML_HEAD + "data:\n" + "".join(f"  k{n}: '{n}'\n" for n in range(10_000)) + "  k1: x\n"
    reply = await client.call("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", data=text, headers=YAML_BODY)
    assert (reply.status, 'key "k1" already set in map' in reply.body["message"]) == (400, True)
    reply = await client.call("POST", CONFIG_MAPS, data=f"{text}  ]", headers=YAML_BODY)
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "patch",
    [
        {
            "metadata": {
                "finalizers": [f"x.example/{n}" for n in range(15_000)],
                "$deleteFromPrimitiveList/finalizers": [f"y.example/{n}" for n in range(15_000)],
            }
        },
        {
            "metadata": {
                "annotations": {"$retainKeys": [f"x{n}" for n in range(15_000)], **{f"y{n}": "" for n in range(15_000)}}
            }
        },
        {
            "spec": {
                "template": {
                    "spec": {
                        "containers": [{"name": "c", "env": [{"name": f"x{n}", "value": "1"} for n in range(10_000)]}]
                    }
                }
            }
        },
    ],
    ids=["values", "keys", "items"],
)
async def test_strategic_patches_take_linear_time(client: Client, patch: Any) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    await client.create(
        path,
        {
            "metadata": {"name": "one"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        },
    )
    started = time.process_time()
    for _ in range(2):
        assert (await client.send_patch(f"{path}/one", patch, STRATEGIC)).status == 200
    assert time.process_time() - started < 10


async def test_broken_json_is_refused_by_strict_validation(client: Client) -> None:
    for text in (f"{{{CONFIG_MAP}, ", "[" * 100_000):
        reply = await client.call("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", data=text, headers=JSON_BODY)
        assert (reply.status, reply.body["reason"]) == (400, "BadRequest")


async def test_selectors_with_numbers_of_many_digits_are_refused(client: Client) -> None:
    reply = await client.call("GET", f"{CONFIG_MAPS}?labelSelector=a%3E{'9' * 5000}")
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
