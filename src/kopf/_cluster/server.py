"""
The local cluster as a whole: the store, the kinds, the control loops, and the HTTP server, put together and run.
"""
from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextvars
import dataclasses
import json
import pathlib
import secrets
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
import yaml

from . import codec, objects, statuses
from .access import Access, Authorization
from .admission.configurations import Configurations
from .admission.reviewing import AdmissionCall, Gate, Reviewer
from .api import API
from .archive import Archive, Snapshot, load_credentials, save_credentials
from .authorizing import User
from .control.basics import Basics
from .control.collecting import Collector
from .control.definitions import Definitions
from .control.namespaces import Namespaces
from .control.simulation import create_nodes, make_simulation
from .control.work import WorkQueue
from .credentials import Credentials, make_credentials, write_privately
from .faults import Faults
from .http import HTTPServer
from .kinds import customs
from .kinds.builtin import read_kinds
from .kinds.kind import Kind, Obj
from .kinds.registry import Registry
from .patches import merge_patch
from .requests import Answer, Call, Request, Stream, asking
from .sessions import Session, Unresolved
from .storage import DEFAULT_HISTORY, Change, Store
from .tokens import LIFETIME, Binding, Tokens
from .webhooks import Caller, Services
from .writing import WriteOptions, Writer

T = TypeVar("T")

#: How often bookmarks are sent to those who want them, in seconds; as in kube-apiserver.
BOOKMARK_INTERVAL: Final = 60.0

_OWN: Final = WriteOptions(manager="kopf")


class ServerOptions(msgspec.Struct, frozen=True):
    """How a server works."""

    history: int
    bookmark_interval: float
    simulate: bool
    bare: bool
    authorization: Authorization
    managed_fields: bool


class ClusterServer:
    """Everything that one server consists of; it belongs to the event loop in which it is started."""

    def __init__(
            self, options: ServerOptions, faults: Faults, services: Services, archive: Archive | None, tokens: Tokens,
    ) -> None:
        super().__init__()
        self._options = options
        self._faults = faults
        self._archive = archive
        self._tokens = tokens
        self._access: Access | None = None
        self._store = Store(options.history)
        self._registry = Registry(read_kinds())
        self._caller = Caller(services)
        self._webhooks = Configurations(self._store, self._registry)
        self._reviewer = Reviewer(self._webhooks, self._caller)
        self._writer = Writer(self._store, self._registry, Gate(self._webhooks, self._reviewer),
                              managed_fields=options.managed_fields)
        self._queue = WorkQueue()
        self._worker: asyncio.Task[None] | None = None
        self._http: HTTPServer | None = None
        self._api: API | None = None

    def _start_control_loops(self, snapshot: Snapshot | None, credentials: Credentials, port: int) -> None:
        """Let the control loops see what is there; then what every cluster has, and what comes."""
        parts = self._store, self._registry, self._writer, self._queue
        namespaces, basics = Namespaces(*parts), Basics(*parts, ca=credentials.ca.decode(), port=port)
        observers = [Definitions(*parts, self._caller).observe, self._webhooks.observe, namespaces.observe,
                     Collector(*parts).observe]
        if not self._options.bare:
            observers.append(basics.observe)
        if self._options.simulate:
            observers += [loop.observe for loop in make_simulation(*parts)]
        if snapshot is not None:
            _restore(self._store, snapshot, observers)
        self._store.observers += observers
        if self._archive is not None:
            self._store.observers.append(self._archive.observe)
        namespaces.create_initial()
        if not self._options.bare:
            basics.create_initial()
        if self._options.simulate:
            create_nodes(*parts)

    def take_snapshot(self) -> Snapshot:
        """Give all the data, for a server that goes on from here."""
        return Snapshot(self._store.revision, list(self._store.all_records()))

    @property
    def admission_calls(self) -> list[AdmissionCall]:
        return list(self._reviewer.calls)

    def set_token(self, token: str) -> None:
        if self._access is not None:
            self._access.set_token(token)

    def create_token(self, namespace: str, name: str, lifetime: float) -> str:
        record = self._store.bucket("serviceaccounts").records.get((namespace, name))
        if record is None:
            raise LookupError(f"there is no service account {name!r} in the namespace {namespace!r}")
        return self._tokens.issue([Binding("serviceaccounts", record.key, record.uid)], lifetime=lifetime)

    def authenticate(self, path: str, authorization: str, impersonation: Mapping[str, Sequence[str]]) -> User:
        if self._access is None:
            raise RuntimeError("the server is not started")
        return self._access.authenticate(path, authorization, impersonation)

    @property
    def counters(self) -> collections.Counter[tuple[str, str, int]]:
        return self._http.counters if self._http is not None else collections.Counter()

    async def start(
            self, host: str, port: int, credentials: Credentials, snapshot: Snapshot | None,
            expire_token: Callable[[], None],
    ) -> int:
        """Begin to serve; give the port."""
        self._faults.clock.use()
        self._access = Access(self._store, self._tokens, token=credentials.token,
                              authorization=self._options.authorization)
        self._store.observers.append(self._access.observe)
        self._api = API(self._store, self._registry, self._writer, self._access, address=f"{host}:{port}",
                        bookmark_interval=self._options.bookmark_interval)
        self._http = HTTPServer(self, faults=self._faults)
        port = await self._http.start(host, port, credentials.make_ssl_context(),
                                      compact=self._store.compact, expire_token=expire_token)
        self._start_control_loops(snapshot, credentials, port)
        self._worker = asyncio.create_task(self._queue.run(), name="control loops of the local cluster")
        return port

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        await self._queue.close()
        await self._caller.close()
        if self._archive is not None:
            self._archive.flush(clean=True)

    def answer(self, call: Call, request: Request) -> Answer | Stream | Awaitable[Answer | Stream]:
        if self._api is None:
            raise RuntimeError("the server is not started")
        if self._webhooks or self._registry.converted:
            return self._answer_in_session(self._api, call, request)
        return self._api.answer(call, request)

    @staticmethod
    async def _answer_in_session(api: API, call: Call, request: Request) -> Answer | Stream:
        """Answer with the help of webhooks, whose warnings are passed to the client."""
        session = Session()
        asking.set(request.user)  # in the task of this request
        try:
            answer = await session.run(lambda: api.answer(call, request))
        except statuses.APIStatus as status:
            status.headers = _with_warnings(status.headers, session.warnings)
            raise
        if isinstance(answer, Answer) and session.warnings:
            return msgspec.structs.replace(answer, headers=_with_warnings(answer.headers, session.warnings))
        return answer

    def apply(self, manifest: Mapping[str, Any]) -> Obj:
        """Create the object, or merge the manifest into the existing one; nobody is asked for admission."""
        try:
            return contextvars.copy_context().run(self._apply, manifest)
        except Unresolved:
            raise statuses.not_implemented(
                f"applying {manifest.get('kind')} in {manifest.get('apiVersion')} by a method, as it is converted by "
                "a webhook (do it by a request, or in the stored version),") from None

    def _apply(self, manifest: Mapping[str, Any]) -> Obj:
        self._faults.clock.use()
        kind = self._need_kind(manifest)
        metadata = manifest.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        key = (namespace, metadata.get("name") or "")
        if key in self._store.bucket(kind.bucket).records:
            record = self._writer.update(kind, key, lambda old: merge_patch(old, manifest), options=_OWN)
        else:
            record = self._writer.create(kind, namespace, dict(manifest), _OWN)
        return objects.open_record(kind, record)

    def _need_kind(self, manifest: Mapping[str, Any]) -> Kind:
        group, _, version = str(manifest.get("apiVersion", "")).rpartition("/")
        kind = self._registry.find_by_kind(group, version, str(manifest.get("kind", "")))
        if kind is None:
            raise statuses.bad_request(f"no matches for kind \"{manifest.get('kind')}\" in version "
                                       f"\"{manifest.get('apiVersion')}\"; is its definition applied already?")
        return kind


def _restore(store: Store, snapshot: Snapshot, observers: Sequence[Callable[[str, Change], None]]) -> None:
    """Bring the data back: first the definitions, so that what they define is known."""
    store.restore(snapshot.revision, snapshot.records)
    definitions = f"{customs.PLURAL}.{customs.GROUP}"
    for bucket, record in sorted(snapshot.records, key=lambda pair: pair[0] != definitions):
        for observer in observers:
            observer(bucket, Change("ADDED", record, None))


def _with_warnings(headers: Mapping[str, str], warnings: Iterable[str]) -> Mapping[str, str]:
    texts = [headers["Warning"]] if "Warning" in headers else []
    texts += [f"299 - {json.dumps(text)}" for text in warnings]
    return {**headers, "Warning": ", ".join(texts)} if texts else headers


class LocalCluster:
    """A Kubernetes API in memory, for tests and experiments.

    As a regular context manager, it runs in a thread of its own; as an asynchronous one, in the current event loop
    and by its clock. When the context ends, nothing remains: no thread, no socket, no file.

    Args:
        host: Where to listen; loopback by default.
        port: Which port to listen on; any free one by default.
        kubeconfig: Where to write the kubeconfig; a temporary file by default. It is removed in the end.
        seed: What the random decisions about faults begin with.
        history: How many bytes of changed objects to remember for watches that go on from older versions.
        bookmark_interval: How often to send bookmarks, in seconds.
        simulate: Whether workloads progress as if there were nodes: pods run, jobs complete, claims are bound, etc.
        authorization: Who may do what: everybody with a token everything (``"always-allow"``, the default), or what
            the roles and bindings grant (``"rbac"``). The token of the cluster may do everything anyway.
        bare: Whether there is nothing in the beginning but the namespaces: no service of the API, and in the
            namespaces neither default service accounts nor ``kube-root-ca.crt``.
        managed_fields: Whether ``metadata.managedFields`` are kept for all objects, which makes all writes slower;
            by default, only for those objects that are applied on the server side.
        data_dir: Where to keep the data and the credentials, for the next local cluster with the same directory
            to go on with them; only in memory by default.
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
            simulate: bool = False,
            bare: bool = False,
            authorization: Authorization = "always-allow",
            managed_fields: bool = False,
            data_dir: str | pathlib.Path | None = None,
    ) -> None:
        super().__init__()
        self.faults = Faults(seed)
        self._host = host
        self._port = port
        self._data_dir = pathlib.Path(data_dir) if data_dir is not None else None
        self._options = ServerOptions(history, bookmark_interval, simulate, bare, authorization, managed_fields)
        self._services = Services()
        self._tokens = Tokens()
        self._archive: Archive | None = None
        self._credentials: Credentials | None = None
        self._wanted_kubeconfig = pathlib.Path(kubeconfig) if kubeconfig is not None else None
        self._used_port = port
        self._server: ClusterServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> LocalCluster:
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run_in_thread, args=(started,), name="kopf-local-cluster")
        self._thread.start()
        try:
            started.result()
        except BaseException:
            started.cancel()  # if it is this thread that is interrupted, the other one goes no further
            self._end_thread()
            raise
        return self

    def __exit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None,
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
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    def _run_in_thread(self, started: concurrent.futures.Future[None]) -> None:
        asyncio.run(self._run_until_stopped(started))

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
            await self._start_server(self._credentials, self._port, snapshot)
        except BaseException:
            self._close_archive()
            raise
        self._loop = asyncio.get_running_loop()

    async def _start_server(self, credentials: Credentials, port: int, snapshot: Snapshot | None) -> None:
        server = ClusterServer(self._options, self.faults, self._services, self._archive, self._tokens)
        try:
            port = await server.start(self._host, port, credentials, snapshot, self._renew_token)
            host = f"[{self._host}]" if ":" in self._host else self._host
            self.url, self.token, self.ca_data = f"https://{host}:{port}", credentials.token, credentials.ca
            self._write_kubeconfig(credentials.make_kubeconfig(self.url))
        except BaseException:
            await server.stop()
            raise
        self._used_port, self._server = port, server

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
        credentials = load_credentials(self._data_dir)
        if credentials is None:
            credentials = make_credentials(self._host)
            save_credentials(self._data_dir, credentials)
        return credentials

    def _renew_token(self) -> None:
        """Make a new token, in the kubeconfig too; the old one is of no use any more."""
        if self._credentials is None or self._server is None:
            return
        self._credentials = dataclasses.replace(self._credentials, token=secrets.token_urlsafe(24))
        self.token = self._credentials.token
        self._server.set_token(self.token)
        self._write_kubeconfig(self._credentials.make_kubeconfig(self.url))
        if self._data_dir is not None:
            save_credentials(self._data_dir, self._credentials)

    def restart(self, *, keep_data: bool = True) -> None:
        """Stop the server and start it again, at the same address: all connections are broken, the history is lost.

        For a cluster in its own thread; in an event loop, use `restart_async`.

        Args:
            keep_data: Whether all objects are kept, and the resource versions go on; otherwise, it is a new and empty
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
        snapshot = server.take_snapshot() if keep_data else None
        if self._archive is not None and not keep_data:
            self._archive.erase()
        await self._start_server(credentials, self._used_port, snapshot)

    def _write_kubeconfig(self, text: str) -> None:
        if self._wanted_kubeconfig is None:
            self._directory = self._directory or tempfile.TemporaryDirectory(prefix="kopf-local-cluster-")
            self.kubeconfig = pathlib.Path(self._directory.name) / "kubeconfig.yaml"
        else:
            self.kubeconfig = self._wanted_kubeconfig
        write_privately(self.kubeconfig, text)

    async def _stop(self) -> None:
        server, self._server, self._loop = self._server, None, None
        try:
            if server is not None:
                await server.stop()
        finally:
            self._close_archive()
            if self._directory is not None:
                self._directory.cleanup()
                self._directory = None
            else:
                self.kubeconfig.unlink(missing_ok=True)

    @property
    def counters(self) -> Mapping[tuple[str, str, int], int]:
        """How many requests were answered, by verb, resource (``pods``, ``pods/status``), and code."""
        return dict(self._need_server().counters)

    def reset_counters(self) -> None:
        """Count the requests anew."""
        self._need_server().counters.clear()

    def register_service(self, namespace: str, name: str, host: str, port: int) -> None:
        """Tell at which local address the service is, for webhooks that are configured by services.

        The certificate there must be for ``{name}.{namespace}.svc``, as in a real cluster.
        """
        self._services.register(namespace, name, host, port)

    @property
    def admission_calls(self) -> list[AdmissionCall]:
        """The latest calls of admission webhooks since the start, in the order of their ends, and the outcomes."""
        return self._need_server().admission_calls

    def create_token(self, namespace: str, name: str, *, lifetime: float = LIFETIME) -> str:
        """Give a bearer token of the service account; the lifetime is in seconds, by the clock of the event loop.

        Raises:
            LookupError: if there is no such service account.
        """
        server = self._need_server()
        return self._call(lambda: server.create_token(namespace, name, lifetime))

    def apply(self, manifests: Mapping[str, Any] | str | pathlib.Path) -> list[dict[str, Any]]:
        """Create the objects, or merge the manifests into existing ones; give their new states.

        Args:
            manifests: One manifest as a dict; or a text with any number of YAML documents; or a path to such a file.

        Raises:
            Exception: with the message of the API if it would refuse any of them.
        """
        if isinstance(manifests, pathlib.Path):
            manifests = manifests.read_text()
        documents = list(yaml.safe_load_all(manifests)) if isinstance(manifests, str) else [manifests]
        # Through the encoding and back, so that only JSON-compatible values come in, and never shared ones.
        clean = [codec.decode(codec.encode(document)) for document in documents if document]
        server = self._need_server()
        return self._call(lambda: [server.apply(document) for document in clean])

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
