"""Lists and watches of a part of the objects, by the hashes of their uids or namespaces."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from kopf_cluster.kinds.shards import hash_text
from tests.cluster.conftest import CONFIG_MAPS, Client, connect_in_memory, make_config_map

CLUSTER: Mapping[str, Any] = {"bare": True, "feature_gates": {"ShardedListAndWatch": True}}
LOWER = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
UPPER = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
QUARTERS = [
    f"shardRange(object.metadata.uid, '{quarter * 2**62:#018x}', '{(quarter + 1) * 2**62:#018x}')"
    for quarter in range(4)
]
NAMES = [f"cm{number:02d}" for number in range(40)]
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}


async def fill(client: Client) -> dict[str, str]:
    """Create the objects; give their names and the halves that they belong to."""
    halves = {}
    for number, name in enumerate(NAMES):
        metadata = {"labels": {"parity": "odd" if number % 2 else "even"}}
        obj = await client.create(CONFIG_MAPS, make_config_map(name, metadata=metadata))
        halves[name] = LOWER if hash_text(obj["metadata"]["uid"]) < 2**63 else UPPER
    return halves


def names_of(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def select(halves: Mapping[str, str], half: str) -> list[str]:
    return [name for name in halves if halves[name] == half]


@pytest.mark.parametrize(
    ("text", "value"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)]
)
def test_the_hash_is_that_of_its_authors(text: str, value: int) -> None:
    assert hash_text(text) == value


async def test_each_object_is_in_one_part(client: Client) -> None:
    halves = await fill(client)
    parts = [names_of(await client.get(CONFIG_MAPS, params={"shardSelector": part})) for part in (LOWER, UPPER)]
    assert parts == [select(halves, LOWER), select(halves, UPPER)]
    assert all(parts)
    quarters = [names_of(await client.get(CONFIG_MAPS, params={"shardSelector": part})) for part in QUARTERS]
    assert sorted(itertools.chain(*quarters)) == NAMES
    joined = {"shardSelector": f"{QUARTERS[0]} || {QUARTERS[3]}"}
    assert names_of(await client.get(CONFIG_MAPS, params=joined)) == sorted(quarters[0] + quarters[3])

    # By namespaces.
    part, other = (LOWER, UPPER) if hash_text("default") < 2**63 else (UPPER, LOWER)
    for selector, names in {part: NAMES, other: []}.items():
        params = {"shardSelector": selector.replace("uid", "namespace")}
        assert names_of(await client.get("/api/v1/configmaps", params=params)) == names

    # In other forms.
    table = await client.get(CONFIG_MAPS, params={"shardSelector": LOWER}, headers=TABLE)
    assert [row["cells"][0] for row in table["rows"]] == select(halves, LOWER)
    partial = await client.get(CONFIG_MAPS, params={"shardSelector": LOWER}, headers=METADATA)
    assert partial["kind"] == "PartialObjectMetadataList"
    assert names_of(partial) == select(halves, LOWER)
    assert table["metadata"]["shardInfo"] == partial["metadata"]["shardInfo"] == {"selector": LOWER}

    # In pages, with labels.
    params = {"shardSelector": UPPER, "labelSelector": "parity=odd", "limit": "3"}
    found: list[str] = []
    while params.get("continue") != "":
        page = await client.get(CONFIG_MAPS, params=params)
        found += names_of(page)
        assert page["metadata"]["shardInfo"] == {"selector": UPPER}
        assert "remainingItemCount" not in page["metadata"]
        params["continue"] = page["metadata"].get("continue", "")
    assert found == [name for name in NAMES[1::2] if halves[name] == UPPER]


async def test_the_part_is_told(client: Client) -> None:
    listed = await client.get(CONFIG_MAPS, params={"shardSelector": LOWER})
    assert listed["metadata"]["shardInfo"] == {"selector": LOWER}
    untidy = f"{QUARTERS[0]}||{QUARTERS[1]} ".replace(", ", ",").replace("'", '"')
    listed = await client.get(CONFIG_MAPS, params={"shardSelector": untidy})
    assert listed["metadata"]["shardInfo"] == {"selector": f"{QUARTERS[0]} || {QUARTERS[1]}"}
    assert "shardInfo" not in (await client.get(CONFIG_MAPS))["metadata"]
    assert "shardInfo" not in (await client.get(CONFIG_MAPS, params={"shardSelector": ""}))["metadata"]


async def test_custom_resources_do_not_tell_the_part(client: Client, kexes: str) -> None:
    """Seen on 1.36.4: only lists of built-in kinds have the field."""
    listed = await client.get(kexes, params={"shardSelector": UPPER})
    assert "shardInfo" not in listed["metadata"]
    refusal = await client.call("GET", kexes, 400, params={"shardSelector": "none"})
    assert refusal.body["message"].startswith("invalid shard selector: ")


async def test_a_watch_tells_of_its_part_only(client: Client) -> None:
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, resourceVersion=version, shardSelector=LOWER) as stream:
        halves = await fill(client)
        lower = select(halves, LOWER)
        for name in NAMES:
            await client.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": "1"}})
        for name in NAMES:
            await client.delete(f"{CONFIG_MAPS}/{name}")
        for type_ in ("ADDED", "MODIFIED", "DELETED"):
            assert await stream.take(len(lower)) == [(type_, name) for name in lower]


async def test_a_watch_with_labels(client: Client) -> None:
    halves = await fill(client)
    even, odd = select(halves, UPPER)[0], select(halves, LOWER)[0]
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    params = {"resourceVersion": version, "shardSelector": UPPER, "labelSelector": "new=yes"}
    async with client.watch(CONFIG_MAPS, **params) as stream:
        for value in ("yes", None):
            for name in (odd, even):
                await client.patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"new": value}}})
        assert await stream.take(2) == [("ADDED", even), ("DELETED", even)]


async def test_a_watch_that_begins_with_a_list(client: Client) -> None:
    halves = await fill(client)
    params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with client.watch(CONFIG_MAPS, shardSelector=UPPER, **params) as stream:
        names = select(halves, UPPER)
        assert await stream.take(len(names)) == [("ADDED", name) for name in names]
        bookmark = await stream.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await client.delete(f"{CONFIG_MAPS}/{select(halves, LOWER)[0]}")
        await client.delete(f"{CONFIG_MAPS}/{names[0]}")
        assert await stream.take(1) == [("DELETED", names[0])]


async def test_the_deletion_of_a_part(client: Client) -> None:
    halves = await fill(client)
    await client.call("DELETE", CONFIG_MAPS, 200, params={"shardSelector": LOWER})
    assert names_of(await client.get(CONFIG_MAPS)) == select(halves, UPPER)


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (
            LOWER.replace("'0x0000000000000000'", "'0x0'"),
            'hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean "0x0000000000000000"?)',
        ),
        (LOWER.replace("0x8", "8"), "hexEnd must have '0x' prefix, got \"8000000000000000\""),
        (LOWER.replace("'0x0000000000000000'", "'0x'"), "hexStart: hex value is required after '0x'"),
        (LOWER.replace("0x8000", "0x8A00"), 'hexEnd: invalid hex character "A" in "0x8A00000000000000"'),
        (
            UPPER.replace("0x1", "0x2"),
            "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
        ),
        (
            UPPER.replace("0x1", "0x10"),
            'hexEnd: hex value too long (18 chars, max 17): "100000000000000000"',
        ),
        (
            LOWER.replace("0x0", "0x9"),
            "shard range start 0x9000000000000000 must be less than end 0x8000000000000000",
        ),
        (LOWER.replace("'0x8000000000000000'", "8"), "hexEnd must be a string literal, got int64"),
        (
            LOWER.replace("'0x8000000000000000'", "high"),
            "hexEnd must be a string literal (e.g. '0xff'), got expression kind 3",
        ),
        (
            LOWER.replace("uid", "name"),
            'unsupported field path "object.metadata.name"; supported: object.metadata.uid, object.metadata.namespace',
        ),
        (
            f"{LOWER} || {UPPER.replace('uid', 'namespace')}",
            'all shard ranges must use the same field, got "object.metadata.uid" and "object.metadata.namespace"',
        ),
        (f"{LOWER} && {UPPER}", 'unsupported function "_&&_"; only shardRange() and || are allowed'),
        ("size(object)", 'unsupported function "size"; only shardRange() and || are allowed'),
        ("shardRange(object.metadata.uid)", "shardRange() requires exactly 3 arguments, got 1"),
        ("true1", "unexpected expression kind 3; expected shardRange() call or || operator"),
        (" ", "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
    ],
)
async def test_refusals(client: Client, selector: str, why: str) -> None:
    for verb in ({}, {"watch": "1"}):
        reply = await client.call("GET", CONFIG_MAPS, 400, params={"shardSelector": selector, **verb})
        assert (reply.body["reason"], reply.body["message"]) == ("BadRequest", f"invalid shard selector: {why}")


async def test_without_the_gate_selectors_are_ignored(shared_certificates: None) -> None:
    async with LocalCluster(bare=True) as cluster, connect_in_memory(cluster) as client:
        await fill(client)
        for selector in (LOWER, "nonsense"):
            listed = await client.get(CONFIG_MAPS, params={"shardSelector": selector})
            assert names_of(listed) == NAMES
            assert "shardInfo" not in listed["metadata"]
        async with client.watch(CONFIG_MAPS, shardSelector=LOWER) as stream:
            assert await stream.take(len(NAMES)) == [("ADDED", name) for name in NAMES]


def test_unknown_gates_are_refused() -> None:
    with pytest.raises(ValueError, match="unrecognized feature gate: Magic; known: ShardedListAndWatch"):
        LocalCluster(feature_gates={"Magic": True})
