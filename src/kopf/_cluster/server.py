"""
The local cluster as a whole: the store, the kinds, the control loops, and the HTTP server, put together and run.
"""
from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import pathlib
import tempfile
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, TypeVar

import yaml

from . import codec, objects, statuses
from .api import API
from .control.collecting import Collector
from .control.definitions import Definitions
from .control.namespaces import Namespaces
from .control.work import WorkQueue
from .credentials import Credentials, make_credentials, write_privately
from .faults import Faults
from .http import HTTPServer
from .kinds.builtin import read_kinds
from .kinds.kind import Kind, Obj
from .kinds.registry import Registry
from .patches import merge_patch
from .requests import Answer, Call, Request, Stream
from .storage import DEFAULT_HISTORY, Store
from .writing import Writer

T = TypeVar("T")

#: How often bookmarks are sent to those who want them, in seconds; as in kube-apiserver.
BOOKMARK_INTERVAL: Final = 60.0


class ClusterServer:
    """Everything that one server consists of; it belongs to the event loop in which it is started."""

    def __init__(self, *, faults: Faults, history: int, bookmark_interval: float) -> None:
        super().__init__()
        self._faults = faults
        self._store = Store(history)
        self._registry = Registry(read_kinds())
        self._writer = Writer(self._store, self._registry)
        self._queue = WorkQueue()
        self._bookmark_interval = bookmark_interval
        self._worker: asyncio.Task[None] | None = None
        self._http: HTTPServer | None = None
        self._api: API | None = None
        self._add_control_loops()

    def _add_control_loops(self) -> None:
        parts = self._store, self._registry, self._writer, self._queue
        namespaces = Namespaces(*parts)
        for loop in (Definitions(*parts), namespaces, Collector(*parts)):
            self._store.observers.append(loop.observe)
        namespaces.create_initial()

    @property
    def counters(self) -> collections.Counter[tuple[str, str, int]]:
        return self._http.counters if self._http is not None else collections.Counter()

    async def start(self, host: str, port: int, credentials: Credentials) -> int:
        """Begin to serve; give the port."""
        self._api = API(self._store, self._registry, self._writer, address=f"{host}:{port}",
                        bookmark_interval=self._bookmark_interval)
        self._http = HTTPServer(self, token=credentials.token, faults=self._faults)
        port = await self._http.start(host, port, credentials.make_ssl_context(), self._store.compact)
        self._worker = asyncio.create_task(self._queue.run(), name="control loops of the local cluster")
        return port

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])

    def answer(self, call: Call, request: Request) -> Answer | Stream:
        if self._api is None:
            raise RuntimeError("the server is not started")
        return self._api.answer(call, request)

    def apply(self, manifest: Mapping[str, Any]) -> Obj:
        """Create the object, or merge the manifest into the existing one."""
        kind = self._need_kind(manifest)
        metadata = manifest.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        key = (namespace, metadata.get("name") or "")
        if key in self._store.bucket(kind.bucket).records:
            record = self._writer.update(kind, key, lambda old: merge_patch(old, manifest))
        else:
            record = self._writer.create(kind, namespace, dict(manifest))
        return objects.open_record(kind, record)

    def _need_kind(self, manifest: Mapping[str, Any]) -> Kind:
        group, _, version = str(manifest.get("apiVersion", "")).rpartition("/")
        kind = self._registry.find_by_kind(group, version, str(manifest.get("kind", "")))
        if kind is None:
            raise statuses.bad_request(f"no matches for kind \"{manifest.get('kind')}\" in version "
                                       f"\"{manifest.get('apiVersion')}\"; is its definition applied already?")
        return kind


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
    ) -> None:
        super().__init__()
        self.faults = Faults(seed)
        self._host = host
        self._port = port
        self._wanted_kubeconfig = pathlib.Path(kubeconfig) if kubeconfig is not None else None
        self._history = history
        self._bookmark_interval = bookmark_interval
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
        credentials = make_credentials(self._host)
        server = ClusterServer(faults=self.faults, history=self._history, bookmark_interval=self._bookmark_interval)
        port = await server.start(self._host, self._port, credentials)
        try:
            host = f"[{self._host}]" if ":" in self._host else self._host
            self.url, self.token, self.ca_data = f"https://{host}:{port}", credentials.token, credentials.ca
            self._write_kubeconfig(credentials.make_kubeconfig(self.url))
        except BaseException:
            await server.stop()
            raise
        self._loop, self._server = asyncio.get_running_loop(), server

    def _write_kubeconfig(self, text: str) -> None:
        if self._wanted_kubeconfig is None:
            self._directory = tempfile.TemporaryDirectory(prefix="kopf-local-cluster-")
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


async def serve_forever(
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        kubeconfig: str | pathlib.Path | None = None,
        started: Callable[[LocalCluster], None] | None = None,
) -> None:
    """Serve until cancelled; the kubeconfig is removed in the end.

    Args:
        started: Called when the cluster is ready, e.g. to tell the user how to use it.
    """
    async with LocalCluster(host=host, port=port, kubeconfig=kubeconfig) as cluster:
        if started is not None:
            started(cluster)
        await asyncio.get_running_loop().create_future()
