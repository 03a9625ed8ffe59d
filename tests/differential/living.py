"""One life: a cluster, an operator under one of the frameworks, the steps of the case, and their outcome."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import enum
import json
import pathlib
import signal
import ssl
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp

from kopf_cluster import LocalCluster
from tests.differential.certificates import write_certificate
from tests.differential.hosting import Host, Process
from tests.differential.kinds import CUSTOM, DEFAULT, KINDS
from tests.differential.lives import Case, Obj, Step, start, stop
from tests.differential.normalising import describe_events, describe_journal, describe_object, tidy
from tests.patience import PATIENCE
from tests.ports import find_free_port

QUIET = 0.6
"""Seconds in which nothing may happen for the life to be settled; longer than the streams lag."""
POLLING = 0.05
LAG = 0.2
"""By how many seconds the operators see changes late, at most."""

PRELUDE = """
import asyncio, dataclasses, datetime, functools, logging, os, random, sys, threading, time
import kopf
from tests.differential.inside.witness import count, note, plain, see
E = ('kopf.dev', 'v1', 'kopfexamples')

@kopf.on.login(id='login')
def _login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)

@kopf.on.startup(id='prelude')
def _prelude(settings, **_):
    settings.posting.enabled = {events}
    settings.posting.loggers = {events}
    {settings}

"""


class Impatience(Exception):
    """It never came so."""


class Life:
    """One life."""

    def __init__(
        self,
        case: Case,
        host: Host,
        cluster: LocalCluster,
        session: aiohttp.ClientSession,
        folder: pathlib.Path,
    ) -> None:
        self.case = case
        self.host = host
        self.cluster = cluster
        self.session = session
        self.folder = folder
        self.outcome: list[str] = []
        self.process: Process | None = None
        self.port = 0
        self._lives = 0

    async def live(self) -> list[str]:
        """Do everything that the case says."""
        case = self.case
        self._write_files()
        life = [*case.given, *case.life]
        if case.life[0].name not in {"start", "launch", "command"}:
            life.insert(len(case.given), start())
        try:
            for number, step in enumerate(life):
                await self._do(number, step)
            if self.process is not None:
                await self._do(len(life), stop())
        except Impatience as e:
            self.outcome.append(f"NEVER: {e}")
        finally:
            if self.process is not None:
                self.process.send(signal.SIGKILL)
                await self.process.exited
        events = [event for event in await self._list("event") if event.get("source", {}).get("component") == "kopf"]
        return [*self.outcome, *self._describe_journals(), *describe_events(events)]

    def _write_files(self) -> None:
        case = self.case
        if case.webhooks:
            write_certificate(self.folder)
        for name, text in {"operator.py": case.source, **case.files}.items():
            settings = textwrap.indent(textwrap.dedent(case.settings).strip(), "    ").strip()
            prelude = "" if case.is_bare else PRELUDE.format(settings=settings, events=case.events)
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(prelude + textwrap.dedent(text))

    async def _do(self, number: int, step: Step) -> None:
        if step.name in {"stop", "kill"} and self.process is None:
            raise AssertionError(f"{self.case.name}: {step} of an operator that does not run")
        told = await getattr(self, f"do_{step.name}")(**step.options)
        self.outcome += [f"step {number} {step.name} | {line}" for line in told or []]

    async def do_create(self, kind: str, body: Obj, namespace: str, dry: bool) -> list[str]:
        query = "?dryRun=All" if dry else ""
        return await self._request("POST", KINDS[kind].get_path(namespace) + query, {**KINDS[kind].head, **body})

    async def do_patch(self, kind: str, name: str, body: Obj, namespace: str, sub: str) -> list[str]:
        path = KINDS[kind].get_path(namespace, name, sub)
        return await self._request("PATCH", path, _replace_now(body), "application/merge-patch+json")

    async def do_delete(self, kind: str, name: str, namespace: str) -> list[str]:
        return await self._request("DELETE", KINDS[kind].get_path(namespace, name))

    async def _request(self, method: str, path: str, payload: Any = None, type_: str = "application/json") -> list[str]:
        data = None if payload is None else json.dumps(payload)
        async with self.session.request(
            method, self.cluster.url + path, data=data, headers={"Content-Type": type_}
        ) as response:
            content = await response.json()
            told = [tidy(f"{response.status}: {content.get('message')}")] if response.status >= 400 else []
            warnings = ",".join(response.headers.getall("Warning", [])).split(",")
            return told + sorted(f"warning: {warning.strip()}" for warning in warnings if warning)

    async def _list(self, kind: str) -> list[Obj]:
        async with self.session.get(self.cluster.url + KINDS[kind].get_path()) as response:
            if response.status == 404:  # its resource is not there yet
                return []
            items: list[Obj] = (await response.json())["items"]
            return [{**KINDS[kind].head, **item} for item in items]

    async def do_settle(self) -> list[str]:
        await self._wait_quiet()
        return await self.do_look()

    async def do_look(self) -> list[str]:
        return [line for obj in await self._list_all() for line in describe_object(obj)]

    async def _list_all(self) -> list[Obj]:
        return [obj for kind in self.case.kinds for obj in await self._list(kind)]

    async def _wait_quiet(self) -> None:
        """Wait until neither the operator nor the cluster does anything, and nothing is expected to be done."""
        # It is counted in looks, not in seconds: on a busy machine, this process is slow, too.
        deadline, looks, needed, previous = time.monotonic() + PATIENCE, 0, QUIET, self._get_activity()
        while True:
            if looks * POLLING >= needed:
                left = max([_get_left(obj) for obj in await self._list_all()], default=Left.NOTHING)
                if left is Left.NOTHING or self.process is None or self.process.exited.done():
                    return
                if left is Left.LEFTOVERS and needed > QUIET:
                    return
                looks, needed = 0, QUIET * 3
            if time.monotonic() > deadline:
                raise Impatience("it does not settle")
            await asyncio.sleep(POLLING)
            current = self._get_activity()
            is_idle = self.process is None or self.process.is_idle()
            looks, previous = (looks + 1 if is_idle and current == previous else 0), current

    def _get_activity(self) -> tuple[int, int]:
        # A stream of changes that is over and goes on is no activity; neither is saying that one is alive.
        requests = sum(
            number
            for (verb, resource, _), number in self.cluster.counters.items()
            if verb != "watch" and "peering" not in resource
        )
        return requests, sum(path.stat().st_size for path in self.folder.glob("journal-*"))

    async def do_until(self, what: str, text: str, times: int) -> None:
        key = {"call": "fn", "note": "text", "log": "message"}[what]

        def check() -> bool:
            found = [line for line in self._read(self._lives) if line["is"] == what and text in line[key]]
            return len(found) >= times

        await self._wait(check, f"{what} {text!r} {times} times")

    async def do_saved(self, key: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(
            json.loads(obj["metadata"].get("annotations", {}).get(key, "{}")).get("success")
            for obj in await self._list_all()
        ):
            if time.monotonic() > deadline:
                raise Impatience(f"{key} is not saved")
            await asyncio.sleep(POLLING)

    async def _wait(self, check: Any, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not check():
            if time.monotonic() > deadline:
                raise Impatience(text)
            await asyncio.sleep(POLLING)

    async def do_start(self, args: list[str], file: str) -> None:
        plural = self.case.watches
        count = self._count_watches(plural)
        await self.do_launch(args, file)
        process = self.process
        assert process is not None
        await self._wait(
            lambda: process.exited.done() or plural is None or self._count_watches(plural) > count,
            "the operator does not begin to watch",
        )

    def _count_watches(self, plural: str | None) -> int:
        counters = self.cluster.counters.items()
        return sum(number for (verb, name, _), number in counters if verb == "watch" and name == plural)

    async def do_launch(self, args: list[str], file: str) -> None:
        self._lives += 1
        self.port = find_free_port()
        given = [arg.format(port=self.port) for arg in [*self.case.args, *args]]
        if not any(arg in {"-m", "--module"} for arg in given) and file:
            given.append(file)
        env = {
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "WEBHOOK_PORT": str(find_free_port()),
            "LIFE": str(self._lives),
            "FOLDER": str(self.folder),
        }
        self.process = await self.host.start(
            ["run", *given], env=env, folder=self.folder, journal=self._get_journal(self._lives)
        )

    async def do_command(self, args: list[str]) -> list[str]:
        self._lives += 1
        env = {"KUBECONFIG": str(self.cluster.kubeconfig)}
        process = await self.host.start(args, env=env, folder=self.folder, journal=self._get_journal(self._lives))
        return [f"exit code: {await process.exited}"]

    async def do_stop(self) -> list[str]:
        assert self.process is not None
        self.process.send(signal.SIGTERM)
        return await self.do_leave()

    async def do_kill(self) -> None:
        assert self.process is not None
        self.process.send(signal.SIGKILL)
        await self.process.exited
        self.process = None

    async def do_leave(self) -> list[str]:
        assert self.process is not None
        process = self.process
        await self._wait(process.exited.done, "the operator does not exit")
        self.process = None
        return [f"exit code: {process.exited.result()}"]

    async def do_probe(self, path: str) -> list[str]:
        deadline, url = time.monotonic() + PATIENCE, f"http://127.0.0.1:{self.port}{path}"
        while True:
            try:
                async with self.session.get(url, headers={"Authorization": ""}) as response:
                    return [tidy(f"{response.status}: {(await response.text())!r}")]
            except aiohttp.ClientError:
                if time.monotonic() > deadline:
                    raise Impatience("the probe is not answered") from None
                await asyncio.sleep(POLLING)

    async def do_fault(self, **options: Any) -> None:
        if options:
            self.cluster.faults.inject(**options)
        else:
            self.cluster.faults.clear()

    def _get_journal(self, number: int) -> pathlib.Path:
        return self.folder / f"journal-{number}"

    def _read(self, number: int) -> list[Obj]:
        path = self._get_journal(number)
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def _describe_journals(self) -> Iterable[str]:
        for number in range(1, self._lives + 1):
            described = describe_journal(self._read(number), parallel=self.case.parallel, first=self.case.first)
            yield from (f"life {number} {line}" for line in described)


def _replace_now(value: Any) -> Any:
    """Times of peers are to be of today."""
    if isinstance(value, dict):
        return {key: _replace_now(item) for key, item in value.items()}
    if value == "<now>":
        return datetime.datetime.now(datetime.UTC).isoformat()
    return value


class Left(enum.IntEnum):
    """What the framework has still to do with an object, by what is written there."""

    NOTHING = 0
    LEFTOVERS = 1
    """There are records of handlers, but they are over. Either others are coming, or nobody knows these handlers."""
    WORK = 2


def _get_left(obj: Obj) -> Left:
    is_blocked = any("kopf" in name.lower() for name in obj["metadata"].get("finalizers", []))
    if "deletionTimestamp" in obj["metadata"] and is_blocked:
        return Left.WORK
    left = Left.NOTHING
    values: list[Any] = [obj["metadata"].get("annotations", {}), obj.get("status", {})]
    while values:
        value = values.pop()
        if isinstance(value, str) and value.startswith("{"):
            with contextlib.suppress(ValueError):
                value = json.loads(value)
        if isinstance(value, dict):
            values += value.values()
            if "started" in value and "purpose" in value:
                is_over = value.get("success") or value.get("failure")
                left = max(left, Left.LEFTOVERS if is_over else Left.WORK)
    return left


@contextlib.asynccontextmanager
async def run_cluster(case: Case, folder: pathlib.Path) -> AsyncIterator[tuple[LocalCluster, aiohttp.ClientSession]]:
    """Run a cluster with the resources that the case speaks of."""
    async with LocalCluster(bare=True) as cluster:
        mentioned = {step.options.get("kind") for step in (*case.given, *case.life)} | {*case.kinds}
        for name, kind in CUSTOM.items():
            if name in DEFAULT or name in mentioned:
                cluster.apply(kind.make_crd())
        cluster.faults.lag_watches(0, up_to=LAG)
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=cluster.ca_data.decode()))
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {cluster.token}"}, connector=connector
        ) as session:
            yield cluster, session


async def live(case: Case, host: Host) -> list[str]:
    """Live the life under the framework of the host; give the outcome."""
    with tempfile.TemporaryDirectory(prefix="life-0") as name:
        folder = pathlib.Path(name)
        async with run_cluster(case, folder) as (cluster, session):
            return await Life(case, host, cluster, session, folder).live()
