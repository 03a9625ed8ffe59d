"""
The server as a whole: the store, the kinds, the control loops, and the HTTP side.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from kopf_cluster import statuses
from kopf_cluster.access.credentials import Credentials
from kopf_cluster.access.gate import Access, Authorization
from kopf_cluster.access.tokens import Binding, Tokens
from kopf_cluster.admission.configurations import Configurations
from kopf_cluster.admission.reviewing import Gate
from kopf_cluster.admission.webhook_calls import Caller, Services
from kopf_cluster.api.api import API
from kopf_cluster.api.discovery import answer_metrics
from kopf_cluster.audit import Audit
from kopf_cluster.builtin_kinds import read_kinds
from kopf_cluster.clients.operations import AGENT, Desk, Operation
from kopf_cluster.control.basics import Basics
from kopf_cluster.control.collecting import Collector
from kopf_cluster.control.definition_life import Definitions
from kopf_cluster.control.disruptions import Disruptions
from kopf_cluster.control.kubelet import Nodes
from kopf_cluster.control.loops import Objects, WorkQueue, supervised
from kopf_cluster.control.namespaces import Namespaces
from kopf_cluster.control.signing import Signers
from kopf_cluster.control.simulation import Extent, make_simulation
from kopf_cluster.custom_resources import definitions as customs
from kopf_cluster.faults.faults import Faults
from kopf_cluster.http.server import HTTPServer, Orders
from kopf_cluster.http.shortcuts import Ask
from kopf_cluster.kinds import shards
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.objects import open_record
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.requests import CONTROL_LOOPS, Answer, Call, Identity, Request, Stream, User, asking, with_warnings
from kopf_cluster.sessions import Session, Unresolved
from kopf_cluster.store.archive import Archive, Snapshot
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Change, ChangeType
from kopf_cluster.writes.writing import Writer

T = TypeVar("T")

BOOKMARK_INTERVAL: Final = 60.0
"""The time between bookmarks, in seconds; as in kube-apiserver."""
FEATURE_GATES: Final = {shards.GATE: False}
"""The supported feature gates, and their defaults in this version of Kubernetes."""


class ServerOptions(msgspec.Struct, frozen=True):
    """The options of a server; `LocalCluster` describes them."""

    history: int
    bookmark_interval: float
    simulate: Extent
    bare: bool
    authorization: Authorization
    managed_fields: bool
    administrator: str
    feature_gates: Mapping[str, bool]


class ClusterServer:
    """All parts of one server, which belongs to the event loop in which it starts."""

    def __init__(
        self,
        options: ServerOptions,
        faults: Faults,
        services: Services,
        archive: Archive | None,
        tokens: Tokens,
        audit: Audit,
        credentials: Credentials,
        orders: Orders,
    ) -> None:
        faults.clock.use()
        self._options = options
        self._faults = faults
        self._archive = archive
        self._tokens = tokens
        self._audit = audit
        self._credentials = credentials
        self._store = Store(options.history)
        self.registry = _make_builtin_registry().copy()
        self._caller = Caller(services)
        self._webhooks = Configurations(self._store, self.registry)
        self.gate = Gate(self._webhooks, self._caller)
        self._writer = Writer(self._store, self.registry, self.gate, managed_fields=options.managed_fields)
        self._queue = WorkQueue()
        self._worker: asyncio.Task[None] | None = None
        self.access = Access(
            self._store,
            self.registry,
            tokens,
            token=credentials.token,
            authorization=options.authorization,
            administrator=options.administrator,
        )
        self._store.observers.append(self.access.observe)
        self._writer.guard = self.access.guard
        self._api = API(
            self._store,
            self.registry,
            self._writer,
            self.access,
            bookmark_interval=options.bookmark_interval,
            sharded=options.feature_gates[shards.GATE],
        )
        self.http = HTTPServer(
            self, faults, audit, credentials.make_ssl_context(), compact=self._store.compact, orders=orders
        )
        self._api.pages.append(lambda request: answer_metrics(request, self._store, self.registry, self.http.counters))

    def observe(self, observer: Observer) -> None:
        """Call the observer for all changes from now on."""

        def observe(bucket: str, change: Change) -> None:
            plural, _, group = bucket.partition(".")
            if (kind := self.registry.find_any_version(group, plural)) is not None:
                observer(Observation(asking.get().name, kind, change))

        self._store.observers.append(supervised(observe))

    def _start_control_loops(self, snapshot: Snapshot | None, port: int) -> None:
        """Show the existing objects to the control loops, then create the initial objects of every cluster."""
        access = Objects(self._store, self.registry, self._writer, self._queue)
        namespaces, basics = Namespaces(access), Basics(access, ca=self._credentials.ca.decode(), port=port)
        observers: list[Callable[[str, Change], None]] = [
            Definitions(access, self._caller).observe,
            self._webhooks.observe,
            namespaces.observe,
            Collector(access).observe,
            Disruptions(access).observe,
            Signers(access, self._credentials).observe,
        ]
        if not self._options.bare:
            observers.append(basics.observe)
        if self._options.simulate:
            observers += [loop.observe for loop in make_simulation(self._options.simulate, access)]
        observers = [supervised(observer) for observer in observers]
        if snapshot is not None:
            _restore(self._store, snapshot, observers)
        self._store.observers += observers
        if self._archive is not None:
            self._store.observers.append(self._archive.observe)
        namespaces.create_initial()
        if not self._options.bare:
            basics.create_initial()
        if self._options.simulate is True:
            Nodes.create_initial(access)

    def take_snapshot(self) -> Snapshot:
        """Return all the data, for a server that continues with them."""
        return Snapshot(self._store.revision, list(self._store.all_records()))

    def create_token(self, namespace: str, name: str, lifetime: float) -> str:
        record = self._store.bucket("serviceaccounts").records.get((namespace, name))
        if record is None:
            raise LookupError(f"there is no service account {name!r} in the namespace {namespace!r}")
        return self._tokens.issue([Binding("serviceaccounts", record.key, record.uid)], lifetime=lifetime)

    def authenticate(self, identity: Identity) -> User:
        return self.access.authenticate(identity)

    def start(self, host: str, port: int, take_snapshot: Callable[[], Snapshot] | None) -> int:
        """Start to serve; return the port. Nothing is awaited here, so the data are restored before any request."""
        port = self.http.start(host, port)
        self._api.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._start_control_loops(None if take_snapshot is None else take_snapshot(), port)
        self._worker = asyncio.create_task(self._run_control_loops(), name="control loops of the local cluster")
        return port

    def find_ask(self) -> Ask | None:
        """Return the way to make requests without a connection, if the server accepts requests."""
        return self.http.ask if self.http.is_open else None

    async def _run_control_loops(self) -> None:
        asking.set(CONTROL_LOOPS)
        await self._queue.run()

    async def stop(self) -> None:
        await self.http.stop()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        await self._queue.close()
        await self._caller.close()
        if self._archive is not None:
            self._archive.flush(clean=True)

    def end_watches(self) -> None:
        """End the streams of the clients in this process; other streams end with their connections."""
        self._store.close()

    def answer(self, call: Call, request: Request) -> Answer | Stream | Awaitable[Answer | Stream]:
        self._faults.clock.use()  # in the task of this connection, which may come from anywhere
        asking.set(request.user)
        if self._webhooks:
            return self._answer_in_session(self._api, call, request)
        try:
            return self._api.answer(call, request)
        except Unresolved:
            return self._answer_in_session(self._api, call, request)

    @staticmethod
    async def _answer_in_session(api: API, call: Call, request: Request) -> Answer | Stream:
        """Answer with the help of webhooks, and pass their warnings to the client."""
        session = Session()
        try:
            answer = await session.run(lambda: api.answer(call, request))
        except statuses.APIStatus as status:
            status.headers = with_warnings(status.headers, after=session.warnings)
            raise
        if isinstance(answer, Answer) and session.warnings:
            return msgspec.structs.replace(answer, headers=with_warnings(answer.headers, after=session.warnings))
        return answer

    async def serve(self, user: User, operation: Operation[T], *, admission: bool = True) -> T:
        """Do the operation of a client in this process; call webhooks for it, unless without admission.

        It starts immediately, and must run in its own context.
        """
        with self._open_desk(user) as desk:
            attempt = functools.partial(operation, desk)
            return await Session().run(attempt) if admission else _attempt_unasked(attempt)

    def serve_at_once(self, user: User, operation: Operation[T], *, admission: bool = True) -> T:
        """Do the operation without waiting; raise `Unresolved` if a webhook must be called."""

        def serve() -> T:
            with self._open_desk(user) as desk:
                attempt = functools.partial(operation, desk)
                return Session().attempt(attempt) if admission else _attempt_unasked(attempt)

        return contextvars.copy_context().run(serve)

    @contextlib.contextmanager
    def _open_desk(self, user: User) -> Iterator[Desk]:
        """Serve the user in the current context, and record that in the audit."""
        self._faults.clock.use()
        asking.set(user)
        desk = Desk(self._api, self.registry, user)
        try:
            yield desk
        finally:
            if desk.outcome is not None:
                self._audit.note(user, *desk.outcome, agent=AGENT)


@functools.cache
def _make_builtin_registry() -> Registry:
    return Registry(read_kinds())


def _attempt_unasked(attempt: Callable[[], T]) -> T:
    try:
        return attempt()
    except Unresolved:
        raise statuses.not_implemented(
            "applying without admission what is converted by a webhook (do it in the stored version)"
        ) from None


def _restore(store: Store, snapshot: Snapshot, observers: Sequence[Callable[[str, Change], None]]) -> None:
    """Restore the data: first the definitions, so that the kinds are known."""
    store.restore(snapshot.revision, snapshot.records)
    definitions = f"{customs.PLURAL}.{customs.GROUP}"
    for bucket, record in sorted(snapshot.records, key=lambda pair: pair[0] != definitions):
        for observer in observers:
            observer(bucket, Change("ADDED", record, None))


# Observations: the changes of objects, for observers in this process.


class Observation(msgspec.Struct, frozen=True):
    """One change of one object, for the observers of a local cluster."""

    user: str
    """The name of the user who changed it; ``system:kube-controller-manager`` for control loops."""
    kind: Kind
    """The kind of the object."""
    change: Change
    """The change as it is stored; see `before` and `after`."""

    @property
    def type(self) -> ChangeType:
        """``ADDED``, ``MODIFIED``, or ``DELETED``."""
        return self.change.type

    @property
    def resource(self) -> str:
        """The plural name with the group, e.g. ``deployments.apps``."""
        return self.kind.bucket

    @property
    def namespace(self) -> str:
        """Empty for cluster-wide objects."""
        return self.change.record.key[0]

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.change.record.key[1]

    @property
    def before(self) -> Obj | None:
        """The object before the change; none for a creation."""
        return None if self.change.previous is None else open_record(self.kind, self.change.previous)

    @property
    def after(self) -> Obj | None:
        """The object after the change; none for a deletion."""
        return None if self.type == "DELETED" else open_record(self.kind, self.change.record)


Observer: TypeAlias = Callable[[Observation], None]
