"""
Measure what an operator takes before it has anything to do: its memory, the CPU of its start, and its modules.

    .venv/bin/python -m benchmarks.idle

The operator is run as users run it, on a local cluster with one custom resource and no objects; with ``uvloop`` (if it
is installed) and without it; logged in by a kubeconfig and, as in a pod, by a service account. Beside it, there is the
floor: one watch-stream by bare ``aiohttp``, see ``bare_stream.py``. *Own* memory is what is not mapped from files: the
rest is shared with other processes of the same Python. The commands that only print something are measured by the CPU
of a process, the least of several.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib.util
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Sequence

import yaml

from benchmarks.processes import Framework, Meter, Pipe, running_cluster, running_operator

SETTLING = 5.0
"""How long the operator is left alone before it is looked at, in seconds."""

ROUNDS = 5
COMMANDS = (["--version"], ["--help"], ["run", "--help"])

_OPERATOR = """
import os, sys
import kopf

@kopf.on.create("widgets")
def create_fn(**_):
    pass

@kopf.on.startup()
def startup_fn(**_):
    os.write(int(os.environ["BENCHMARK_PIPE"]), f"{len(sys.modules)}\\n".encode())
"""

# What is run in the beginning of each process, as ``sitecustomize``.
_WITHOUT_UVLOOP = "import sys; sys.modules['uvloop'] = None\n"
"""The command line does not find it then, as if it were not installed."""
_IN_POD = """
import os
from kopf._client.auth import service_account

service_account.SERVICE_ACCOUNT_PATH = {folder!r}
os.environ |= {{"KUBERNETES_SERVICE_HOST": {host!r}, "KUBERNETES_SERVICE_PORT": {port!r}}}
"""

_WATCHED = "/apis/bench.example.com/v1/widgets"


@dataclasses.dataclass(frozen=True)
class Access:
    """How to get to the cluster."""

    kubeconfig: pathlib.Path
    account: pathlib.Path
    """A folder as it is mounted to pods."""
    server: str

    @classmethod
    def make(cls, kubeconfig: pathlib.Path) -> Access:
        """Make a service account of what is in the kubeconfig."""
        config = yaml.safe_load(kubeconfig.read_text())
        place, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        account = kubeconfig.parent / "account"
        account.mkdir()
        (account / "token").write_text(user["token"])
        (account / "ca.crt").write_bytes(base64.b64decode(place["certificate-authority-data"]))
        return cls(kubeconfig, account, place["server"])

    @property
    def customization(self) -> str:
        """What makes a process believe that it is in a pod."""
        url = urllib.parse.urlsplit(self.server)
        return _IN_POD.format(folder=str(self.account), host=url.hostname, port=str(url.port))


@dataclasses.dataclass(frozen=True)
class Idle:
    """What an idle process takes: CPU in seconds, memory in MiB."""

    cpu: float
    memory: float
    own_memory: float
    modules: int

    @classmethod
    def of(cls, meter: Meter, modules: int) -> Idle:
        """Look at the process as it is now."""
        lines = pathlib.Path(f"/proc/{meter.pid}/status").read_text().splitlines()
        own = float(dict(line.split(":", 1) for line in lines)["RssAnon"].split()[0]) / 1024
        return cls(meter.cpu, meter.memory / 1024, own, modules)


async def measure_operator(folder: pathlib.Path, access: Access, customization: str) -> Idle:
    """Run an operator with nothing to do, and look at it when it has settled."""
    file, pipe = folder / "operator_file.py", Pipe()
    file.write_text(_OPERATOR)
    framework = Framework("kopf", _make_python(folder, customization))
    log = folder / "operator.log"
    async with (
        pipe.reader() as reader,
        running_operator(framework, file, kubeconfig=access.kubeconfig, pipe=pipe, log=log) as meter,
    ):
        modules = int(await asyncio.wait_for(reader.readline(), 30))
        await asyncio.sleep(SETTLING)
        return Idle.of(meter, modules)


async def measure_floor(folder: pathlib.Path, access: Access, customization: str) -> Idle:
    """The same for bare ``aiohttp``."""
    script = pathlib.Path(__file__).with_name("bare_stream.py")
    token, authority = (access.account / "token").read_text(), str(access.account / "ca.crt")
    process = await asyncio.create_subprocess_exec(
        str(_make_python(folder, customization)), str(script), access.server, token, authority, _WATCHED,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        modules = int(await asyncio.wait_for(process.stdout.readline(), 30))
        await asyncio.sleep(SETTLING)
        return Idle.of(Meter(process.pid), modules)
    finally:
        process.kill()
        await process.wait()


def _make_python(folder: pathlib.Path, customization: str) -> pathlib.Path:
    """Make a command that runs Python with something changed."""
    (folder / "sitecustomize.py").write_text(customization)
    command = folder / "python"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    command.chmod(0o700)
    return command


def measure_command(args: Sequence[str]) -> float:
    """Run the command several times; give the least CPU that it has taken, in seconds."""
    taken = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "kopf", *args], check=True, stdout=subprocess.DEVNULL, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


async def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # compilation is not what is measured
    for args in COMMANDS:
        print(f"kopf {' '.join(args):<16} {measure_command(args):6.3f} s of CPU")
    loops = {"asyncio": _WITHOUT_UVLOOP} | ({"uvloop": ""} if importlib.util.find_spec("uvloop") else {})
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as name:
        folder = pathlib.Path(name)
        kubeconfig = folder / "kubeconfig.yaml"
        async with running_cluster(kubeconfig):
            access = Access.make(kubeconfig)
            for loop, customization in loops.items():
                floor = await measure_floor(folder, access, customization)
                in_pod = await measure_operator(folder, access, customization + access.customization)
                by_kubeconfig = await measure_operator(folder, access, customization)
                for what, idle in (("floor", floor), ("in a pod", in_pod), ("by a kubeconfig", by_kubeconfig)):
                    print(
                        f"idle, {loop}, {what:<16} {idle.memory:6.1f} MiB, of them own {idle.own_memory:.1f} MiB; "
                        f"{idle.modules} modules; {idle.cpu:.2f} s of CPU to start"
                    )


if __name__ == "__main__":
    asyncio.run(main())
