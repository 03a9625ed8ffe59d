"""
Reads: one object, lists with selectors and pages, and the start of a watch.

Lists are consistent: all pages show the state at the revision of the first one, as long as the history
contains it; see "Retrieving large results sets in chunks" of the Kubernetes "API Concepts".
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import Iterator
from typing import Final

import msgspec

from kopf_cluster import sessions, statuses
from kopf_cluster.encodings import STREAMED
from kopf_cluster.kinds import objects, selectors
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.shards import parse_shards
from kopf_cluster.reads.representations import negotiate
from kopf_cluster.reads.watching import Selection, Watch, WatchOptions
from kopf_cluster.requests import Answer, Call, Request
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Change, Compacted, Record

_EXPIRED_TOKEN: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter."
)

_MATCHES: Final = ("Exact", "NotOlderThan")


class ContinueToken(msgspec.Struct):
    """The last key of the previous page, and the revision of the list."""

    revision: int
    namespace: str
    name: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return msgspec.json.decode(raw, type=cls)
        except (ValueError, msgspec.MsgspecError):
            raise statuses.bad_request(f'continue key is not valid: "{text}"') from None


class Reader:
    """All reads from the store."""

    def __init__(self, store: Store, bookmark_interval: float, *, sharded: bool) -> None:
        self._store = store
        self._bookmark_interval = bookmark_interval
        self._is_sharded = sharded

    @property
    def revision(self) -> int:
        return self._store.revision

    def get(self, kind: Kind, call: Call, request: Request) -> Answer:
        form = negotiate(kind, request).form
        require_version(self._store, self._read_version(request) or 0, request)
        key = (call.namespace or "", call.name or "")
        record = self._store.bucket(kind.bucket).records.get(key)
        if record is None:
            raise statuses.not_found(kind, key[1])
        if kind.converter is not None:
            kind.converter.require(kind, [record], fresh=True)
        return Answer(200, form.one(kind, record))

    def list_page(self, kind: Kind, call: Call, request: Request) -> Answer:
        form = negotiate(kind, request).form
        statuses.require_valid(_OPTIONS, "", _validate_list_options(request))
        selection = self.select(kind, call, request)
        limit = request.number("limit") or 0
        after, revision = None, self._choose_revision(request)
        if request.query.get("continue"):
            if request.query.get("resourceVersion", "0") not in ("", "0"):
                raise statuses.bad_request("specifying resource version is not allowed when using continue")
            token = ContinueToken.decode(request.query["continue"])
            after, revision = (token.namespace, token.name), token.revision
        try:
            records = self._list_at(kind, selection, revision, after, limit)
        except Compacted as error:
            if after is not None:
                raise statuses.expired(_EXPIRED_TOKEN) from None
            raise statuses.expired(f"too old resource version: {revision} ({error.oldest})") from None
        metadata: Obj = {"resourceVersion": str(revision)}
        if selection.shards is not None and not kind.custom:  # custom resources are filtered, too, but it is not told
            metadata["shardInfo"] = {"selector": str(selection.shards)}
        if limit and len(records) > limit:
            records = records[:limit]
            metadata["continue"] = ContinueToken(revision, *records[-1].key).encode()
            if not selection.has_selectors:
                bucket = self._store.bucket(kind.bucket)
                metadata["remainingItemCount"] = bucket.count(selection.namespace, records[-1].key)
        return Answer(200, form.many(kind, records, metadata))

    def watch(self, kind: Kind, call: Call, request: Request) -> Watch:
        bookmarks = request.flag("allowWatchBookmarks")
        initial = request.flag("sendInitialEvents")
        statuses.require_valid(_OPTIONS, "", _validate_watch_options(request))
        version = self._read_version(request)
        options = WatchOptions(
            since=None if initial or version == 0 else version,
            bookmarks=bookmarks,
            bookmark_interval=self._bookmark_interval,
            mark_initial_end=initial,
            timeout=request.number("timeoutSeconds") or None,
        )
        selection = self.select(kind, call, request)
        choice = negotiate(kind, request)
        frames = STREAMED.get(choice.media)
        if frames is None:
            raise statuses.not_acceptable(f"{media};stream=watch" for media in STREAMED)
        return Watch(self._store, kind, selection, choice.form, options, frames)

    def select(self, kind: Kind, call: Call, request: Request) -> Selection:
        """Make the selection from the path and the selectors in the query."""
        fields = selectors.parse_fields(
            request.query.get("fieldSelector", ""),
            kind.fields,
            _look_up_in(kind) if kind.custom and kind.fields else None,
        )
        labels = selectors.parse_labels(request.query.get("labelSelector", ""))
        shards = parse_shards(request.query.get("shardSelector", "")) if self._is_sharded else None
        return Selection(call.namespace, labels, fields, shards)

    def selected(self, kind: Kind, selection: Selection) -> list[Record]:
        """Return the current records of the selection."""
        return self._list_at(kind, selection, self._store.revision, None, 0)

    def _list_at(
        self,
        kind: Kind,
        selection: Selection,
        revision: int,
        after: tuple[str, str] | None,
        limit: int,
    ) -> list[Record]:
        """Return up to one record more than the limit, which tells whether there are more."""
        records = self._store.bucket(kind.bucket).snapshot(revision, selection.namespace, after)
        if selection.has_selectors:
            if selection.fields is not None and kind.converter is not None:
                kind.converter.require(kind, candidates := list(records))
                records = iter(candidates)
            records = filter(selection.accepts, records)
        return list(itertools.islice(records, limit + 1) if limit else records)

    def _choose_revision(self, request: Request) -> int:
        version = self._read_version(request)
        match = request.query.get("resourceVersionMatch")
        if version is not None:
            require_version(self._store, version, request)
        is_exact = match == "Exact" or (not match and request.number("limit"))  # the latter as it was before the match
        return version if is_exact and version else self._store.revision

    def _read_version(self, request: Request) -> int | None:
        if request.query.get("resourceVersion", "").startswith("-"):
            text = request.query["resourceVersion"]
            raise statuses.bad_request(
                f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
            )
        return request.number("resourceVersion")


def _look_up_in(kind: Kind) -> selectors.LookUp:
    """Look up the fields of custom resources in the version of the kind, regardless of the stored version."""

    def look_up(record: Record, field: str) -> str:
        if field not in kind.fields or (kind.converter is None and field in record.fields):
            return selectors.field_of(record, field)
        return kind.fields[field].show(objects.open_record(kind, record))

    return look_up


_OPTIONS: Final = statuses.Naming(group="meta.k8s.io", kind="ListOptions")


def _validate_list_options(request: Request) -> Iterator[statuses.FieldError]:
    """Yield meaningless combinations, see "API Concepts" ("Semantics for get and list")."""
    query = request.query
    match, version = query.get("resourceVersionMatch"), query.get("resourceVersion")
    if match:
        if not version:
            yield _forbid("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if query.get("continue"):
            yield _forbid("resourceVersionMatch is forbidden when continue is provided")
        if match not in _MATCHES:
            yield statuses.unsupported_value("resourceVersionMatch", match, [*_MATCHES, ""])
        elif match == "Exact" and version == "0":
            yield _forbid('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if query.get("sendInitialEvents"):
        yield statuses.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _validate_watch_options(request: Request) -> Iterator[statuses.FieldError]:
    """Yield meaningless combinations, see "API Concepts" ("Streaming lists")."""
    match, initial = request.query.get("resourceVersionMatch"), request.query.get("sendInitialEvents")
    if initial and not match:
        yield _forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    elif initial:
        yield from statuses.one_of("resourceVersionMatch", match, ("NotOlderThan",))
    elif match:
        yield _forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if request.flag("sendInitialEvents") and not request.flag("allowWatchBookmarks"):
        yield statuses.forbidden_value("sendInitialEvents", "sendInitialEvents requires allowWatchBookmarks to be set")


def _forbid(why: str) -> statuses.FieldError:
    return statuses.forbidden_value("resourceVersionMatch", why)


# Reads with a minimal version wait for it for a short time, and are refused if it does not come.
#
# See "Unavailable resource versions" of the Kubernetes "API Concepts".

MAX_WAIT: Final = 3.0
"""The maximal time to wait for a future version, in seconds; as in kube-apiserver."""


def require_version(store: Store, version: int, request: Request) -> None:
    """Wait for the version for a short time, and raise the refusal if it does not come."""
    if version > store.revision:
        wanted = request.read_timeout() or MAX_WAIT
        sessions.ask(("version", version), lambda: _wait(store, version, min(wanted, MAX_WAIT)))
    if version > store.revision:
        raise statuses.resource_version_too_large(version, store.revision)


async def _wait(store: Store, version: int, timeout: float) -> None:
    reached = asyncio.Event()

    def observe(bucket: str, change: Change) -> None:
        if store.revision >= version:
            reached.set()

    store.observers.append(observe)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await reached.wait()
    finally:
        store.observers.remove(observe)
