"""
The public interface of the local cluster: its start and stop, in a thread or in an event loop, and its kubeconfig.
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
from kopf_cluster.http.client_connections import LOOPBACK, Listener, make_plain_kubeconfig
from kopf_cluster.http.memory import MemoryNetwork
from kopf_cluster.http.server import Orders
from kopf_cluster.requests import ADMINISTRATOR
from kopf_cluster.server import BOOKMARK_INTERVAL, FEATURE_GATES, ClusterServer, Observer, ServerOptions
from kopf_cluster.store.archive import Archive, ArchiveError, Snapshot
from kopf_cluster.store.storage import DEFAULT_HISTORY

T = TypeVar("T")


class LocalCluster(Client):
    """A Kubernetes API server in memory, for tests and experiments.

    As a regular context manager, it runs in its own thread; as an asynchronous one, in the current event loop and by
    its clock. When the context ends, nothing remains: no thread, no socket, no file.

    * ``host``: the address to listen on; loopback by default.
    * ``port``: the port to listen on; any free one by default.
    * ``kubeconfig``: the path to write the kubeconfig to; a temporary file by default. The cluster removes it in the
      end.
    * ``seed``: the seed of the random decisions about faults; 0 by default.
    * ``history``: the size of the history for watches that continue from older versions, in bytes; 32 MiB by default.
    * ``bookmark_interval``: the time between bookmarks, in seconds; 60 by default.
    * ``simulate``: whether workloads progress as if there were nodes: pods run, jobs complete, claims are bound, etc.;
      with ``"controllers"``, controllers create and delete pods, but the pods do not run. Off by default.
    * ``authorization``: ``"always-allow"`` (the default): all users may do everything; ``"rbac"``: only the grants of
      roles and bindings; ``"rbac-with-owners"``: also for owner references, as with the admission plugin
      ``OwnerReferencesPermissionEnforcement``. The administrator may always do everything.
    * ``bare``: whether to start with the namespaces only: without the service of the API, default service accounts, and
      ``kube-root-ca.crt``. Off by default.
    * ``managed_fields``: whether to keep ``metadata.managedFields`` for all objects, as real clusters do (the default);
      otherwise, only for objects that are applied on the server side, which makes all writes slightly faster.
    * ``administrator``: the name of the user in the kubeconfig; ``kubernetes-admin`` by default.
    * ``feature_gates``: the features to turn on or off, as with ``--feature-gates`` of kube-apiserver;
      ``ShardedListAndWatch`` (off by default) is the only one here.
    * ``data_dir``: the directory with the data and the credentials, with which the next local cluster in the same
      directory continues; only in memory by default.

    Raises `ValueError` for an unknown feature gate; on the start, `OSError` if the port is busy, `ArchiveError` if the
    directory cannot be used. The methods raise `RuntimeError` while the cluster is not running.
    """

    kubeconfig: pathlib.Path
    """The path of the kubeconfig, with the address, the certificate, and the token embedded."""
    url: str
    """The address of the API, e.g. ``https://127.0.0.1:12345``."""
    token: str
    """The bearer token of the administrator."""
    ca_data: bytes
    """The certificate of the authority that signed the certificate of the server (PEM)."""

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
        self._plain_listener: Listener | None = None
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
        """Start with the data, if there are any; take them late, as the old server may still write."""
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
            previous.end_watches()  # only now can their clients continue with the new server

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
        """Return the text of a kubeconfig for a user, with a certificate that is valid for a year.

        * ``user``: the name of the user; of service accounts in full, ``system:serviceaccount:default:operator``.
        * ``groups``: the groups of the user; the groups of service accounts are known.

        With ``authorization="rbac"``, the user has the permissions that roles grant to the user or to the groups.
        """
        if self._credentials is None:
            raise RuntimeError("this local cluster is not running")
        certificate = make_client_certificate(self._credentials, user, make_user(user, groups).groups)
        return self._credentials.make_kubeconfig(self.url, certificate)

    def write_kubeconfig(self, path: pathlib.Path, user: str, groups: Iterable[str] = ()) -> None:
        """Write the kubeconfig of `make_kubeconfig` to a file that only the current user of the system can read."""
        write_privately(path, self.make_kubeconfig(user, groups))

    def renew_token(self) -> None:
        """Replace the token of the administrator, also in the kubeconfig; the server refuses the old one."""
        if self._credentials is None or self._server is None:
            return
        self._credentials = dataclasses.replace(self._credentials, token=secrets.token_urlsafe(24))
        self.token = self._credentials.token
        self._server.access.set_token(self.token)
        self.kubeconfig = self._kubeconfigs.write(self._credentials.make_kubeconfig(self.url))
        if self._data_dir is not None:
            save_credentials(self._data_dir, self._credentials)

    def restart(self, *, keep_data: bool = True) -> None:
        """Stop the server and start it again at the same address: connections break, the history is lost.

        For a cluster in its own thread; in an event loop, use `restart_async`.

        * ``keep_data``: whether to keep all objects and continue the resource versions; otherwise, it is a new and
          empty cluster with the same address and credentials.
        """
        if self._thread is None or self._loop is None:
            raise RuntimeError("this local cluster runs in an event loop: use `await cluster.restart_async()`")
        asyncio.run_coroutine_threadsafe(self.restart_async(keep_data=keep_data), self._loop).result()

    async def restart_async(self, *, keep_data: bool = True) -> None:
        """Restart the server as `restart` does, in the event loop of the cluster."""
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
        """Restart the server as `restart` does, without waiting."""
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_task(
                self.restart_async(keep_data=keep_data), name="restart of the local cluster"
            )

    async def _stop(self) -> None:
        if self._restarting is not None:
            await asyncio.wait([self._restarting])
        server, self._server, self._loop = self._server, None, None
        if self._plain_listener is not None:
            await self._plain_listener.close()
        try:
            if server is not None:
                await server.stop()
                server.end_watches()
        finally:
            self._close_archive()
            self._kubeconfigs.remove()

    @property
    def counters(self) -> Mapping[tuple[str, str, int], int]:
        """The numbers of answered requests by verb, resource (``pods``, ``pods/status``), and code."""
        return dict(self._need_server().http.counters)

    def reset_counters(self) -> None:
        """Reset the numbers of answered requests."""
        self._need_server().http.counters.clear()

    @property
    def audit(self) -> list[AuditRecord]:
        """The latest requests since the start (10,000 at most), in the order of their answers."""
        return self._audit.describe()

    def write_audit(self, path: str | pathlib.Path) -> None:
        """Write the audit to a file as JSON, e.g. for ``kopf rbac --observed``."""
        pathlib.Path(path).write_bytes(codec.encode({"requests": self.audit}))

    def reset_audit(self) -> None:
        """Clear the audit."""
        self._audit.clear()

    def register_service(self, namespace: str, name: str, host: str, port: int) -> None:
        """Register the local address of a service, for webhooks that are configured by services.

        The certificate of the webhook must be for ``{name}.{namespace}.svc``, as in a real cluster.
        """
        self._services[namespace, name] = (host, port)

    @property
    def admission_calls(self) -> list[AdmissionCall]:
        """The latest calls of admission webhooks since the start (10,000 at most), in the order of their answers."""
        return list(self._need_server().gate.calls)

    def create_token(self, namespace: str, name: str, *, lifetime: float = LIFETIME) -> str:
        """Return a bearer token of the service account.

        * ``namespace``: the namespace of the service account.
        * ``name``: the name of the service account.
        * ``lifetime``: the time until the token expires, in seconds of the clock of the event loop; 3600 by default.

        Raises `LookupError` if there is no such service account.
        """
        server = self._need_server()
        return self._door.do_and_wait(self._user, lambda _: server.create_token(namespace, name, lifetime))

    def add_token(self, token: str, user: str, groups: Iterable[str] = ()) -> None:
        """Accept the bearer token for the user, as a static token file of a real server does."""
        self._tokens.add(token, make_user(user, groups))

    def as_user(self, name: str, groups: Iterable[str] = ()) -> UserClient:
        """Return a client of another user, with its own ``kubeconfig``.

        * ``name``: the name of the user; of service accounts in full, ``system:serviceaccount:default:operator``.
        * ``groups``: the groups of the user; the groups of service accounts are known.
        """
        groups = tuple(groups)
        return UserClient(
            self._door,
            make_user(name, groups),
            lambda: self._kubeconfigs.write_another(self.make_kubeconfig(name, groups)),
        )

    async def open_plain_port(self, user: str, groups: Iterable[str] = ()) -> pathlib.Path:
        """Listen without TLS, too, for faster connections; return the path of a kubeconfig for the user."""
        token = secrets.token_urlsafe(24)
        self.add_token(token, user, groups)
        self._plain_listener = Listener(self._accept)  # it remains when the server is restarted
        port = self._plain_listener.open(LOOPBACK, 0)
        return self._kubeconfigs.write_another(make_plain_kubeconfig(port, token))

    def resolve_kind(self, kind: str) -> tuple[str, str, bool]:
        """Return two full names of the kind, e.g. ``deployments.apps``, and whether it is namespaced.

        The first name is for requests, with the version; the second one is that of observations.

        Raises `APIStatus` if there is no such kind.
        """
        found = find_kind(self._need_server().registry, kind)
        return found.full_name, found.bucket, found.namespaced

    def observe(self, observer: Observer) -> None:
        """Call the function for each change of any object from now on, immediately, in the thread of the cluster."""
        self._observers.append(observer)
        if self._server is not None:
            self._server.observe(observer)

    def open_network(self) -> MemoryNetwork:
        """Return a network in memory, for a client in the same event loop: without sockets and TLS."""
        return MemoryNetwork(self._accept, lambda: None if self._server is None else self._server.find_ask())

    def _accept(self) -> asyncio.Protocol:
        if self._server is None:
            raise ConnectionRefusedError("this local cluster is not running")
        return self._server.http.accept()

    def _find_server(self) -> tuple[ClusterServer, asyncio.AbstractEventLoop]:
        server = self._need_server()
        if self._loop is None:
            raise RuntimeError("this local cluster is not running")
        return server, self._loop

    def _need_server(self) -> ClusterServer:
        if self._server is None:
            raise RuntimeError("this local cluster is not running")
        return self._server
