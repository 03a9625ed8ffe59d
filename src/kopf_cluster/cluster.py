"""
The local cluster as its users see it: started and stopped, in a thread or in an event loop, with a kubeconfig.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import pathlib
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from kopf_cluster import codec
from kopf_cluster.access.credentials import (
    Credentials,
    Kubeconfigs,
    load_credentials,
    make_client_certificate,
    make_credentials,
    save_credentials,
    write_privately,
)
from kopf_cluster.access.gate import Authorization
from kopf_cluster.access.tokens import LIFETIME, Tokens, make_user
from kopf_cluster.admission.reviewing import AdmissionCall
from kopf_cluster.admission.webhook_calls import Services
from kopf_cluster.audit import Audit, AuditRecord
from kopf_cluster.clients.client import Client, UserClient
from kopf_cluster.clients.operations import Door, find_kind
from kopf_cluster.control.simulation import Extent
from kopf_cluster.faults.faults import Faults
from kopf_cluster.http.client_connections import PlainPort
from kopf_cluster.http.memory import MemoryNetwork
from kopf_cluster.http.server import Orders
from kopf_cluster.requests import ADMINISTRATOR
from kopf_cluster.server import BOOKMARK_INTERVAL, FEATURE_GATES, ClusterServer, Observer, ServerOptions
from kopf_cluster.store.archive import Archive, ArchiveError, Snapshot
from kopf_cluster.store.storage import DEFAULT_HISTORY

T = TypeVar("T")


class LocalCluster(Client):
    """A Kubernetes API in memory, for tests and experiments.

    As a regular context manager, it runs in a thread of its own; as an asynchronous one, in the current event loop
    and by its clock. When the context ends, nothing remains: no thread, no socket, no file.

    * ``host``: where to listen; loopback by default.
    * ``port``: which port to listen on; any free one by default.
    * ``kubeconfig``: where to write the kubeconfig; a temporary file by default. It is removed in the end.
    * ``seed``: what the random decisions about faults begin with.
    * ``history``: how many bytes of changed objects to remember for watches that go on from older versions.
    * ``bookmark_interval``: how often to send bookmarks, in seconds.
    * ``simulate``: whether workloads progress as if there were nodes: pods run, jobs complete, claims are bound, etc.;
      with ``"controllers"``, pods are created and deleted, but it is up to others what becomes of them.
    * ``authorization``: who may do what: everybody with a token everything (``"always-allow"``, the default), or what
      the roles and bindings grant (``"rbac"``), also when owner references are set (``"rbac-with-owners"``), as with
      the admission plugin ``OwnerReferencesPermissionEnforcement``. The token of the cluster may do everything anyway.
    * ``bare``: whether there is nothing in the beginning but the namespaces: no service of the API, and in the
      namespaces neither default service accounts nor ``kube-root-ca.crt``.
    * ``managed_fields``: whether ``metadata.managedFields`` are kept for all objects, as in real clusters; otherwise,
      only for those objects that are applied on the server side, which makes all writes a bit faster.
    * ``administrator``: the name of the user to whom the token of the cluster belongs, as ``kubectl auth whoami``
      tells.
    * ``feature_gates``: which features are on or off, as ``--feature-gates`` of kube-apiserver tells;
      ``ShardedListAndWatch`` (off by default) is the only one that makes a difference here.
    * ``data_dir``: where to keep the data and the credentials, for the next local cluster with the same directory to go
      on with them; only in memory by default.
    """

    kubeconfig: pathlib.Path
    """The path of the kubeconfig, with everything embedded."""
    url: str
    """The address of the API, e.g. ``https://127.0.0.1:12345``."""
    token: str
    """The bearer token of the only user, who may do everything."""
    ca_data: bytes
    """The certificate of the authority that has signed the server's certificate (PEM)."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        kubeconfig: str | pathlib.Path | None = None,
        seed: int = 0,
        history: int = DEFAULT_HISTORY,
        bookmark_interval: float = BOOKMARK_INTERVAL,
        simulate: Extent = False,
        bare: bool = False,
        authorization: Authorization = "always-allow",
        managed_fields: bool = True,
        administrator: str = ADMINISTRATOR.name,
        feature_gates: Mapping[str, bool] | None = None,
        data_dir: str | pathlib.Path | None = None,
    ) -> None:
        super().__init__(Door(self._find_server), dataclasses.replace(ADMINISTRATOR, name=administrator))
        self.faults = Faults(seed)
        self._host = host
        self._port = port
        self._data_dir = pathlib.Path(data_dir) if data_dir is not None else None
        gates = {**FEATURE_GATES, **(feature_gates or {})}
        if unknown := gates.keys() - FEATURE_GATES.keys():
            raise ValueError(
                f"unrecognized feature gate: {', '.join(sorted(unknown))}; known: {', '.join(FEATURE_GATES)}"
            )
        self._options = ServerOptions(
            history, bookmark_interval, simulate, bare, authorization, managed_fields, administrator, gates
        )
        self._services: Services = {}
        self._tokens = Tokens()
        self._audit = Audit()
        self._archive: Archive | None = None
        self._observers: list[Observer] = []
        self._credentials: Credentials | None = None
        self._kubeconfigs = Kubeconfigs(pathlib.Path(kubeconfig) if kubeconfig is not None else None)
        self._used_port = port
        self._plain_port: PlainPort | None = None
        self._server: ClusterServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None
        self._restarting: asyncio.Task[None] | None = None

    def __enter__(self) -> LocalCluster:
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run_until_stopped(started)), name="kopf-local-cluster"
        )
        self._thread.start()
        try:
            started.result()
        except BaseException:
            started.cancel()  # if it is this thread that is interrupted, the other one goes no further
            self._end_thread()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_thread()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._loop is not None and self._stopping is not None:
                self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()

    async def __aenter__(self) -> LocalCluster:
        await self._start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _run_until_stopped(self, started: concurrent.futures.Future[None]) -> None:
        self._stopping = asyncio.Event()
        try:
            await self._start()
        except BaseException as error:
            if started.set_running_or_notify_cancel():
                started.set_exception(error)
            return
        try:
            if started.set_running_or_notify_cancel():
                started.set_result(None)
                await self._stopping.wait()
        finally:
            await self._stop()

    async def _start(self) -> None:
        if self._server is not None:
            raise RuntimeError("this local cluster is running already")
        snapshot = self._open_archive()
        try:
            self._credentials = self._find_credentials()
            await self._start_server(self._credentials, self._port, None if snapshot is None else lambda: snapshot)
        except BaseException:
            self._close_archive()
            raise
        self._loop = asyncio.get_running_loop()

    async def _start_server(
        self,
        credentials: Credentials,
        port: int,
        take_snapshot: Callable[[], Snapshot] | None,
    ) -> None:
        """Start, with the data if there are any: taken at the last moment, as the old server still accepts some."""
        orders = Orders(
            expire_token=self.renew_token, restart=self._restart_soon, issue_kubeconfig=self.make_kubeconfig
        )
        server = ClusterServer(
            self._options, self.faults, self._services, self._archive, self._tokens, self._audit, credentials, orders
        )
        try:
            port = server.start(self._host, port, take_snapshot)
            for observer in self._observers:
                server.observe(observer)
            host = f"[{self._host}]" if ":" in self._host else self._host
            self.url, self.token, self.ca_data = f"https://{host}:{port}", credentials.token, credentials.ca
            self.kubeconfig = self._kubeconfigs.write(credentials.make_kubeconfig(self.url))
        except BaseException:
            await server.stop()
            raise
        previous, self._used_port, self._server = self._server, port, server
        if previous is not None:
            previous.end_watches()  # not before there is another server to go on with

    def _open_archive(self) -> Snapshot | None:
        if self._data_dir is None:
            return None
        self._archive = Archive(self._data_dir)
        return self._archive.open()

    def _close_archive(self) -> None:
        archive, self._archive = self._archive, None
        if archive is not None:
            archive.close()

    def _find_credentials(self) -> Credentials:
        if self._data_dir is None:
            return make_credentials(self._host)
        try:
            credentials = load_credentials(self._data_dir)
        except ValueError as error:
            raise ArchiveError(str(error)) from error
        if credentials is None:
            credentials = make_credentials(self._host)
            save_credentials(self._data_dir, credentials)
        return credentials

    def make_kubeconfig(self, user: str, groups: Iterable[str] = ()) -> str:
        """Give the text of a kubeconfig for a user with a certificate of this name, with the groups in it.

        With ``authorization="rbac"``, the user may do what the roles grant to the user or to the groups.
        The certificate is good for a year, and for as long as the cluster lives. Service accounts are named in full,
        ``system:serviceaccount:default:operator``; their groups are known.
        """
        if self._credentials is None:
            raise RuntimeError("this local cluster is not running")
        certificate = make_client_certificate(self._credentials, user, make_user(user, groups).groups)
        return self._credentials.make_kubeconfig(self.url, certificate)

    def write_kubeconfig(self, path: pathlib.Path, user: str, groups: Iterable[str] = ()) -> None:
        """Write the same to a file that only the current user of the system can read."""
        write_privately(path, self.make_kubeconfig(user, groups))

    def renew_token(self) -> None:
        """Make a new token, in the kubeconfig too; the old one is of no use any more."""
        if self._credentials is None or self._server is None:
            return
        self._credentials = dataclasses.replace(self._credentials, token=secrets.token_urlsafe(24))
        self.token = self._credentials.token
        self._server.set_token(self.token)
        self.kubeconfig = self._kubeconfigs.write(self._credentials.make_kubeconfig(self.url))
        if self._data_dir is not None:
            save_credentials(self._data_dir, self._credentials)

    def restart(self, *, keep_data: bool = True) -> None:
        """Stop the server and start it again, at the same address: all connections are broken, the history is lost.

        For a cluster in its own thread; in an event loop, use `restart_async`.

        * ``keep_data``: whether all objects are kept, and the resource versions go on; otherwise, it is a new and empty
          cluster at the old address, with the same credentials, and the versions begin anew.
        """
        if self._thread is None or self._loop is None:
            raise RuntimeError("this local cluster runs in an event loop: use `await cluster.restart_async()`")
        asyncio.run_coroutine_threadsafe(self.restart_async(keep_data=keep_data), self._loop).result()

    async def restart_async(self, *, keep_data: bool = True) -> None:
        """Do the same as `restart`, in the event loop of the cluster."""
        server, credentials = self._need_server(), self._credentials
        if credentials is None:
            raise RuntimeError("this local cluster has no credentials")
        await server.stop()
        if self._server is not server:
            return  # the cluster is stopped meanwhile
        if self._archive is not None and not keep_data:
            self._archive.erase()
        await self._start_server(credentials, self._used_port, server.take_snapshot if keep_data else None)

    def _restart_soon(self, keep_data: bool) -> None:
        """Do the same as `restart` without waiting for that."""
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_task(
                self.restart_async(keep_data=keep_data), name="restart of the local cluster"
            )

    async def _stop(self) -> None:
        if self._restarting is not None:
            await asyncio.wait([self._restarting])
        server, self._server, self._loop = self._server, None, None
        if self._plain_port is not None:
            await self._plain_port.close()
        try:
            if server is not None:
                await server.stop()
                server.end_watches()
        finally:
            self._close_archive()
            self._kubeconfigs.remove()

    @property
    def counters(self) -> Mapping[tuple[str, str, int], int]:
        """How many requests were answered, by verb, resource (``pods``, ``pods/status``), and code."""
        return dict(self._need_server().counters)

    def reset_counters(self) -> None:
        """Count the requests anew."""
        self._need_server().counters.clear()

    @property
    def audit(self) -> list[AuditRecord]:
        """Who did what: the latest requests since the start, in the order of their answers."""
        return self._audit.describe()

    def write_audit(self, path: str | pathlib.Path) -> None:
        """Write that to a file, as JSON: e.g. for ``kopf rbac --observed``."""
        pathlib.Path(path).write_bytes(codec.encode({"requests": self.audit}))

    def reset_audit(self) -> None:
        """Forget who did what until now."""
        self._audit.clear()

    def register_service(self, namespace: str, name: str, host: str, port: int) -> None:
        """Tell at which local address the service is, for webhooks that are configured by services.

        The certificate there must be for ``{name}.{namespace}.svc``, as in a real cluster.
        """
        self._services[namespace, name] = (host, port)

    @property
    def admission_calls(self) -> list[AdmissionCall]:
        """The latest calls of admission webhooks since the start, in the order of their ends, and the outcomes."""
        return self._need_server().admission_calls

    def create_token(self, namespace: str, name: str, *, lifetime: float = LIFETIME) -> str:
        """Give a bearer token of the service account; the lifetime is in seconds, by the clock of the event loop.

        Raises `LookupError` if there is no such service account.
        """
        server = self._need_server()
        return self._call(lambda: server.create_token(namespace, name, lifetime))

    def add_token(self, token: str, user: str, groups: Iterable[str] = ()) -> None:
        """Accept this bearer token as that of the user, as if from a static token file of the API server."""
        self._tokens.add(token, make_user(user, groups))

    def as_user(self, name: str, groups: Iterable[str] = ()) -> UserClient:
        """Give a client that acts as somebody else, with the kubeconfig for others to do so.

        Service accounts are named in full, ``system:serviceaccount:default:operator``; their groups are known.
        """
        groups = tuple(groups)
        return UserClient(
            self._door,
            make_user(name, groups),
            lambda: self._kubeconfigs.write_another(self.make_kubeconfig(name, groups)),
        )

    async def open_plain_port(self, user: str, groups: Iterable[str] = ()) -> pathlib.Path:
        """Listen without TLS, too, which new connections take long for; give the path of a kubeconfig for the user."""
        token = secrets.token_urlsafe(24)
        self.add_token(token, user, groups)
        self._plain_port = PlainPort(self._accept)
        self._plain_port.open()
        return self._kubeconfigs.write_another(self._plain_port.make_kubeconfig(token))

    def resolve_kind(self, kind: str) -> tuple[str, str, bool]:
        """Tell the plural name of the kind with its group, e.g. ``deployments.apps``, and whether it is namespaced.

        The first of the two names is for requests, with the version if it was given; the second one is that of
        observations. Raises `APIStatus` if there is no such kind.
        """
        found = find_kind(self._need_server().registry, kind)
        return found.full_name, found.bucket, found.namespaced

    def observe(self, observer: Observer) -> None:
        """Call the function for every change of every object from now on, at once, in the thread of the cluster."""
        self._observers.append(observer)
        if self._server is not None:
            self._server.observe(observer)

    def open_network(self) -> MemoryNetwork:
        """Give a way to the cluster in memory, for a client in the same event loop: no socket, no TLS, all the rest."""
        return MemoryNetwork(self._accept, lambda: None if self._server is None else self._server.find_ask())

    def _accept(self) -> asyncio.Protocol:
        if self._server is None:
            raise ConnectionRefusedError("this local cluster is not running")
        return self._server.accept()

    def _find_server(self) -> tuple[ClusterServer, asyncio.AbstractEventLoop]:
        server = self._need_server()
        if self._loop is None:
            raise RuntimeError("this local cluster is not running")
        return server, self._loop

    def _need_server(self) -> ClusterServer:
        if self._server is None:
            raise RuntimeError("this local cluster is not running")
        return self._server

    def _call(self, function: Callable[[], T]) -> T:
        """Call in the server's thread."""
        if self._thread is None or self._loop is None:
            return function()

        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
