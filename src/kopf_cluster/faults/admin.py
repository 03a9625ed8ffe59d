"""
The administration of a server from other processes, at ``/_kopf/``: faults and counters.

==========================  ===============================================================================
``GET /_kopf/counters``     the numbers of answered requests by verb, resource, and code
``DELETE /_kopf/counters``  count anew
``GET /_kopf/audit``        the latest requests
``DELETE /_kopf/audit``     forget them
``GET /_kopf/faults``       the current faults
``PUT /_kopf/faults``       set any of: ``rules``, ``seed``, ``watch_lifetime``, ``watch_lag`` (the shortest and
                            the longest one, in seconds), ``silent``, ``paused``; for some clients only:
                            ``watch_lifetime_of``, ``watch_lag_of`` (``user``, ``agent``), and lists of these:
                            ``frozen``, ``partitioned``
``DELETE /_kopf/faults``    end all faults
``POST /_kopf/watches/cut`` break all current watches; with ``?clean=1`` end them properly
``POST /_kopf/compact``     forget the history
``POST /_kopf/token/expire``  refuse the current token; the new one is in the kubeconfig
``POST /_kopf/restart``     start the server anew; with ``?keep_data=0`` with no data
``POST /_kopf/kubeconfig``  give a kubeconfig with a certificate of ``?user=jane&groups=devs,ops``
``POST /_kopf/clock``       move the clock of timestamps: ``?seconds=3600``, or ``?seconds=-60``
==========================  ===============================================================================
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from kopf_cluster import codec, statuses
from kopf_cluster.audit import Audit
from kopf_cluster.faults.clients import EVERYBODY, Clients
from kopf_cluster.faults.fault_rules import FaultRule
from kopf_cluster.faults.faults import Faults, WatchDrops
from kopf_cluster.faults.lagging import WatchLag
from kopf_cluster.requests import Answer, Request

PREFIX: Final = "_kopf"

KubeconfigIssuer: TypeAlias = Callable[[str, Iterable[str]], str]
"""Makes a kubeconfig of a user with groups."""


class FaultSettings(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of faults; absent settings stay as they are."""

    rules: list[FaultRule] | msgspec.UnsetType = msgspec.UNSET
    seed: int | msgspec.UnsetType = msgspec.UNSET
    watch_lifetime: float | msgspec.UnsetType | None = msgspec.UNSET
    watch_lag: tuple[float, float] | msgspec.UnsetType | None = msgspec.UNSET
    """The shortest and the longest lag."""
    watch_lifetime_of: Clients | msgspec.UnsetType = msgspec.UNSET
    """The clients whose watches are cut; by default, all clients."""
    watch_lag_of: Clients | msgspec.UnsetType = msgspec.UNSET
    silent: bool | msgspec.UnsetType = msgspec.UNSET
    paused: bool | msgspec.UnsetType = msgspec.UNSET
    frozen: tuple[Clients, ...] | msgspec.UnsetType = msgspec.UNSET
    partitioned: tuple[Clients, ...] | msgspec.UnsetType = msgspec.UNSET


class Admin:
    """Answers under the administrative prefix."""

    def __init__(
        self,
        faults: Faults,
        counters: collections.Counter[tuple[str, str, int]],
        audit: Audit,
        issue: KubeconfigIssuer,
    ) -> None:
        self._faults = faults
        self._issue = issue
        self._counters = counters
        self._audit = audit

    def answer(self, request: Request) -> Answer:
        match request.method, request.path[1:]:
            case "GET", ("counters",):
                return Answer(200, codec.encode(self._count()))
            case "DELETE", ("counters",):
                self._counters.clear()
            case "GET", ("audit",):
                return Answer(200, codec.encode({"requests": self._audit.describe()}))
            case "DELETE", ("audit",):
                self._audit.clear()
            case "GET", ("faults",):
                pass
            case "PUT", ("faults",):
                self._set_faults(request.body)
            case "DELETE", ("faults",):
                self._faults.clear()
            case "POST", ("watches", "cut"):
                self._faults.cut_watches(clean=request.flag("clean"))
            case "POST", ("compact",):
                self._faults.compact()
            case "POST", ("token", "expire"):
                self._faults.expire_token()
            case "POST", ("restart",):
                self._faults.restart(keep_data=request.flag("keep_data") or "keep_data" not in request.query)
            case "POST", ("kubeconfig",):
                return self._make_kubeconfig(request)
            case "POST", ("clock",):
                self._move_clock(request.query.get("seconds", ""))
            case _:
                raise statuses.unknown_path()
        return Answer(200, codec.encode(self._describe_faults()))

    def _make_kubeconfig(self, request: Request) -> Answer:
        user = request.query.get("user", "")
        if not user:
            raise statuses.bad_request("the parameter user is required: the user of the kubeconfig")
        groups = [group for group in request.query.get("groups", "").split(",") if group]
        return Answer(200, self._issue(user, groups).encode(), "application/yaml")

    def _count(self) -> dict[str, object]:
        requests = [
            {"verb": verb, "resource": resource, "code": code, "count": count}
            for (verb, resource, code), count in sorted(self._counters.items())
        ]
        return {"total": self._counters.total(), "requests": requests}

    def _describe_faults(self) -> FaultSettings:
        faults = self._faults
        lag, drops = faults.watch_lag, faults.watch_drops
        return FaultSettings(
            list(faults.rules),
            watch_lifetime=None if drops is None else drops.period,
            watch_lag=None if lag is None else (lag.least, lag.most),
            watch_lifetime_of=_mention(drops),
            watch_lag_of=_mention(lag),
            silent=faults.silent,
            paused=faults.paused,
            frozen=faults.frozen or msgspec.UNSET,
            partitioned=faults.partitioned or msgspec.UNSET,
        )

    def _move_clock(self, seconds: str) -> None:
        try:
            self._faults.move_clock(float(seconds))
        except ValueError as error:
            raise statuses.bad_request(f"the clock cannot be moved: {error}") from None

    def _set_faults(self, body: bytes) -> None:
        faults = self._faults
        try:
            settings = msgspec.json.decode(body, type=FaultSettings)
            dropped, lagging = (
                msgspec.structs.asdict(clients or EVERYBODY)
                for clients in (settings.watch_lifetime_of, settings.watch_lag_of)
            )
            setters: dict[str, Callable[[Any], None]] = {
                "seed": faults.reseed,
                "rules": faults.replace,
                "watch_lifetime": lambda seconds: faults.drop_watches_every(seconds, **dropped),
                "watch_lag": lambda lag: faults.lag_watches(*(lag or (None,)), **lagging),
                "silent": faults.silence_watches,
                "paused": lambda paused: faults.pause() if paused else faults.resume(),
                "frozen": lambda frozen: faults.isolate(frozen, faults.partitioned),
                "partitioned": lambda partitioned: faults.isolate(faults.frozen, partitioned),
            }
            for name, set_value in setters.items():
                if (value := getattr(settings, name)) is not msgspec.UNSET:
                    set_value(value)
        except (msgspec.MsgspecError, ValueError) as error:
            raise statuses.bad_request(f"wrong fault settings: {error}") from None


def _mention(fault: WatchDrops | WatchLag | None) -> Clients | msgspec.UnsetType:
    """Return the clients only if they are not all clients."""
    return msgspec.UNSET if fault is None or fault.clients == EVERYBODY else fault.clients
