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
from tests.cluster.conftest import CONFIG_MAPS, Client, make_definition

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
    version["schema"] = {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": {"type": "object", "properties": {"field": field}}},
    }}
    cluster.apply(definition)
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    obj = {
        "apiVersion": f"{group}/{version['name']}", "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": "x"}, "spec": {"field": "a" * 50 + "!"},
    }
    async with asyncio.timeout(5):
        path = f"/apis/{group}/{version['name']}/namespaces/default/{plural}"
        reply = await client.call("POST", path, json=obj)
        assert reply.status == 422
        assert await client.get(CONFIG_MAPS)


def _make_bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


BOMBS = [
    _make_bomb(9), "a: &a [*a]", "a: &a {b: *a}",
    "\n".join(["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9))]),
    f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]", "[" * 5000, "a: 2020-99-99", "a: &a\n? [*a]\n: 1",
]


@pytest.mark.parametrize("text", BOMBS, ids=lambda text: repr(text[:30]))
async def test_bombs_of_aliases_are_refused(client: Client, text: str) -> None:
    async with asyncio.timeout(5):
        reply = await client.call(
            "POST", CONFIG_MAPS, data=text.encode(), headers={"Content-Type": "application/yaml"},
        )
        assert reply.status == 400
        assert len(str(reply.body)) < 2000
        assert await client.get(CONFIG_MAPS)


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
