"""What is loaded: an operator does not pay for what it does not use, neither in its memory nor in its start."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import subprocess
import sys

import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.cli.conftest import Starter
from tests.patience import PATIENCE

REPORTER = """
import json, pathlib, sys
import kopf

@kopf.on.login()
def login_fn(**_):
    return kopf.ConnectionInfo(**json.loads(pathlib.Path("login.json").read_text()))

@kopf.on.event("kopfexamples")
async def event_fn(name, logger, **_):
    pathlib.Path("modules.json").write_text(json.dumps(sorted(sys.modules)))
    if sys.platform == "linux":
        pathlib.Path("maps.txt").write_text(pathlib.Path("/proc/self/maps").read_text())
    logger.info("The modules are reported.")
"""

OBJ = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj1"}}

#: What no operator needs that only handles objects; with all that is under these names.
UNNEEDED = [
    "kopf_cluster",
    "kopf.testing",
    "kopf.cli.checking",
    "kopf.cli.dev",
    "kopf.cli.cluster",
    "kopf.cli.peering",
    "kopf.cli.releasing",
    "kopf._admission",
    "kopf._checking",
    "kopf._insight",
    "kopf._kits",
    "kopf._legacy",
    "kopf._models",
    "kopf._values.reviews",
    "kopf._serving.http_server",
    "kopf._serving.threaded_server",
    "kopf._controller.background",
    "kopf._controller.deselected_objects",
    "kopf._replay",
    "kopf._virtual_time",
    "kopf._coordination.membership",
    "kopf._coordination.peers",
    "kopf._coordination.replica_identity",
    "kopf._operator.replica_status",
    "kopf._values.replica_state",
    "kopf._health.health",
    "kopf._client.auth.exec_plugins",
    "kopf._client.auth.kubeconfig",
    "kopf._client.auth.piggyback",
    "kopf._logging.json_format",
    "pythonjsonlogger",
    "kopf._insight",
    "prometheus_client",
    "opentelemetry",
    "aiohttp",
    "yarl",
    "multidict",
    "attr",
    "cryptography",
    "jsonpatch",
    "kubernetes",
    "pykube",
    "pyngrok",
    "difflib",
    "getpass",
    "importlib.metadata",
    "logging.config",
    "sysconfig",
    "unittest",
    "zipfile",
]

#: What is there because of the libraries that it stands on, whoever imports them.
LIBRARIES = """
import contextlib, json, sys
import asyncio, dataclasses, logging, ssl
import aiohappyeyeballs, click, httptools, msgspec
with contextlib.suppress(ImportError):
    import uvloop
print(json.dumps(sorted(sys.modules)))
"""

#: What is there beside that, with all that is under these names: whatever is added here costs memory to every operator.
OWN_NEEDS = [
    "kopf",
    "reporter",
    "importlib",  # files of handlers
    "runpy",  # not for the installed command, but for `python -m kopf`
    "queue",
    "_queue",  # the threads of handlers
    "faulthandler",  # where the threads are, if the operator is stopped by force
    "ctypes",
    "_ctypes",  # to give the freed memory back, see `kopf.cli.memory`
    "encodings.idna",
    "stringprep",
    "unicodedata",  # the name of the server for TLS
    "urllib",
    "ipaddress",  # the URLs of the server
    "zlib",  # listings are compressed
    "hashlib",
    "_hashlib",
    "_blake2",  # names of annotations, and whether certificates have changed
    "random",
    "_random",
    "_sha512",
    "bisect",
    "_bisect",  # jitters of delays
    "pathlib",
    "fnmatch",
    "ntpath",
    "http",  # files of handlers; codes of HTTP
    "glob",
    "grp",
    "pwd",  # the same files, since Python 3.13
    "yaml",  # the kubeconfigs; not in pods
]

COMMANDS = [
    "check",
    "cluster",
    "crd",
    "demo",
    "dev",
    "explain",
    "freeze",
    "init",
    "manifests",
    "plan",
    "rbac",
    "release",
    "replay",
    "resume",
    "run",
    "shards",
]


@pytest.fixture
def forge() -> None:
    """Nothing is imported before the command is started."""


def run(code: str, *, cwd: pathlib.Path, **env: str) -> str:
    command, env = [sys.executable, "-P", "-c", code], {**os.environ, **env}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=PATIENCE, cwd=cwd, env=env
    ).stdout


def find_loaded(unneeded: list[str], loaded: list[str]) -> list[str]:
    return [name for name in loaded if any(name == prefix or name.startswith(f"{prefix}.") for prefix in unneeded)]


def test_running_operators_have_only_what_they_use(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    place, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    login = {"server": place["server"], "ca_data": place["certificate-authority-data"], "token": user["token"]}
    (tmp_path / "login.json").write_text(json.dumps(login))
    (tmp_path / "reporter.py").write_text(REPORTER)
    cluster.apply(OBJ)
    with start("run", "--all-namespaces", "--standalone", "reporter.py") as process:
        process.wait_for("The modules are reported.")
        assert process.stop() == 0
    loaded = json.loads((tmp_path / "modules.json").read_text())
    assert "kopf._controller.controller" in loaded
    assert find_loaded(UNNEEDED, loaded) == []
    by_libraries = json.loads(run(LIBRARIES, cwd=tmp_path))
    others = [name for name in loaded if name not in by_libraries and not name.startswith("_cython_")]  # of yaml
    assert {*others} - {*find_loaded(OWN_NEEDS, others)} == set()
    if sys.platform == "linux":
        assert "/libc" in (tmp_path / "maps.txt").read_text()
        assert "/libstdc++" not in (tmp_path / "maps.txt").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator is of Linux")
@pytest.mark.parametrize(
    ("env", "needed"),
    [
        ({}, platform.libc_ver()[0] == "glibc"),
        ({"MALLOC_MMAP_THRESHOLD_": "131072"}, False),
    ],
)
def test_the_allocator_is_told_nothing_if_the_user_has_told_it(
    tmp_path: pathlib.Path,
    env: dict[str, str],
    needed: bool,
) -> None:
    code = "import sys, kopf.cli.memory as memory; memory.give_back_freed_memory(); print('ctypes' in sys.modules)"
    assert run(code, cwd=tmp_path, **env) == f"{needed}\n"


HOLES = """
import asyncio, resource, sys, kopf.cli.memory as memory
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop

def read_resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

async def main():
    memory.trim_heap_regularly(asyncio.get_running_loop())
    blocks = [bytes(4000) for _ in range(4000)]
    del blocks[1::2], blocks[1::2]
    before = read_resident()
    await asyncio.sleep(600)
    print(before - read_resident() > 5 * 2**20, "ctypes" in sys.modules)

with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
    runner.run(main())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is of glibc")
@pytest.mark.parametrize(("work", "outcome"), [(0.001, "True True"), (1000, "False False")])
def test_the_holes_of_the_heap_are_given_back_by_those_who_work(
    tmp_path: pathlib.Path,
    work: float,
    outcome: str,
) -> None:
    code = HOLES.replace("async def", f"memory._TRIM_WORK = {work}\nasync def", 1)
    assert run(code, cwd=tmp_path) == f"{outcome}\n"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_is_only_printed_needs_nothing_of_the_framework(tmp_path: pathlib.Path, option: str) -> None:
    output = run(
        "import atexit, json, sys\n"
        "atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules))))\n"
        f"from kopf.cli import main; main([{option!r}], prog_name='kopf')",
        cwd=tmp_path,
    )
    loaded = json.loads(output.splitlines()[-1])
    assert "kopf.cli" in loaded
    assert find_loaded(["aiohttp", "asyncio", "msgspec", "ssl", "yaml", "importlib.metadata"], loaded) == []
    assert find_loaded(["kopf"], loaded) == ["kopf", "kopf._values", "kopf._values.version", "kopf.cli"]


def test_the_list_of_the_commands_and_the_commands_are_of_the_same_names(tmp_path: pathlib.Path) -> None:
    code = """
import click, json
from kopf.cli import main
context = click.Context(main)
names = main.list_commands(context)
print(json.dumps({name: main.get_command(context, name).name for name in names}))
print(main.get_command(context, "nonexistent"))
"""
    names, nonexistent = run(code, cwd=tmp_path).splitlines()
    assert sorted(json.loads(names)) == COMMANDS
    assert all(name == asked for asked, name in json.loads(names).items())
    assert nonexistent == "None"


def test_the_commands_can_be_listed_by_plugins(tmp_path: pathlib.Path) -> None:
    code = """
import sys
from kopf.cli import main
names = list(main.commands)
print(*sorted(names), "run" in main.commands, main.commands.get("nonexistent"), "kopf.cli.running" in sys.modules)
print(*(name for name, command in main.commands.items() if command.name == name))
del main.commands["dev"]
main(["--help"], prog_name="kopf")
"""
    listed, imported, *output = run(code, cwd=tmp_path).splitlines()
    assert listed == f"{' '.join(COMMANDS)} True None False"
    assert sorted(imported.split()) == COMMANDS
    assert any(line.startswith("  run ") for line in output)
    assert not any(line.startswith("  dev ") for line in output)


def test_commands_that_are_added_are_there_too(tmp_path: pathlib.Path) -> None:
    code = """
import click
from kopf.cli import main
@main.command()
def added():
    "It is added by somebody."
@main.command(hidden=True)
def secret(): "It is not shown."
main(["--help"], prog_name="kopf")
"""
    output = run(code, cwd=tmp_path)
    assert "It is added by somebody." in output
    assert "freeze" in output
    assert "It is not shown." not in output


def test_the_local_cluster_says_what_it_lacks(tmp_path: pathlib.Path) -> None:
    """The runner of operators in tests works without it: e.g. where operators are tested against real clusters."""
    code = """
import sys
sys.modules["jsonpatch"] = None
from kopf.testing import KopfRunner
try:
    from kopf.testing import LocalCluster
except ImportError as e:
    print(e)
"""
    assert "pip install 'kopf[dev]'" in run(code, cwd=tmp_path)


def test_the_command_of_the_local_cluster_says_what_it_lacks(tmp_path: pathlib.Path) -> None:
    code = """
import sys
sys.modules["jsonpatch"] = None
from kopf.cli import main
main(["cluster"], prog_name="kopf", standalone_mode=False)
"""
    with pytest.raises(subprocess.CalledProcessError) as e:
        run(code, cwd=tmp_path)
    assert "pip install 'kopf[dev]'" in e.value.stderr
