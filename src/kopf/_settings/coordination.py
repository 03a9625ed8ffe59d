"""The settings of several replicas of one operator: whether one of them works, or all of them share the work."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from kopf._values.operator_error import OperatorError

CoordinationMode = Literal["leader", "shards"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""What Kubernetes accepts as the value of a label, as a part of other names, and as a namespace."""

_JITTER = 1.2
"""How much later than the retry period an attempt can be made, so that replicas do not make them at once."""


@dataclasses.dataclass
class CoordinationSettings:
    """Several replicas of one operator, which know of each other by Leases. The names are those of ``client-go``."""

    mode: CoordinationMode | None = None
    """``leader``: one replica works, the others wait. ``shards``: all work, each on its part of the objects."""
    name: str = "kopf"
    """The name of the Lease; the replicas of one operator have the same one, no other operator of the namespace has."""
    namespace: str | None = None
    """Where the Leases are; ``None`` is for the namespace of the pod, or that of the current context."""
    identity: str | None = None
    """What this replica is called; ``None`` is for the name of the pod, or that of the host and the process."""
    lease_duration: int = 15
    """For how long the others wait since the last renewal until they take a replica for dead; in whole seconds."""
    renew_deadline: float = 10.0
    """How long a replica that cannot renew its Lease goes on, until it stops everything."""
    retry_period: float = 2.0
    """How often the Lease is renewed."""
    drain_timeout: float = 30.0
    """How long the handlers of objects that move to another replica may go on, until they are cancelled."""


def is_label(value: object) -> bool:
    """Tell if it can be the name of a Lease and the value of its label, or the name of a namespace."""
    return isinstance(value, str) and _LABEL.fullmatch(value) is not None


def set_coordination(
    settings: CoordinationSettings, *, leader_election: bool | str | None, shards: bool | str | None
) -> None:
    """
    Choose the mode by those options that are given; a string is the name of the Lease.

    Raises :class:`ValueError` if both are given.
    """
    if leader_election and shards:
        raise ValueError("The replicas can either elect a leader or share the objects (shards), not both.")
    if option := leader_election or shards:
        settings.mode = "leader" if leader_election else "shards"
        settings.name = option if isinstance(option, str) else settings.name


def check_coordination(settings: CoordinationSettings) -> None:
    """Check that replicas with these settings are safe. Raises :class:`OperatorError` with what is wrong."""
    if settings.mode is None:
        return
    if settings.mode not in ("leader", "shards"):
        raise OperatorError(f"settings.coordination.mode must be 'leader', 'shards', or None, got {settings.mode!r}.")
    for field, value in (("name", settings.name), ("namespace", settings.namespace)):
        if not is_label(value) and not (field == "namespace" and value is None):
            raise OperatorError(
                f"settings.coordination.{field} must be of lowercase letters, digits, and dashes between them, of at "
                f"most 63 characters, got {value!r}."
            )
    if settings.lease_duration < 1 or settings.lease_duration != int(settings.lease_duration):
        raise OperatorError(
            f"settings.coordination.lease_duration must be a whole number of seconds, got {settings.lease_duration!r}."
        )
    if not 0 < settings.retry_period * _JITTER < settings.renew_deadline < settings.lease_duration:
        raise OperatorError(
            f"In settings.coordination, renew_deadline ({settings.renew_deadline:g}) must be less than lease_duration "
            f"({settings.lease_duration:g}), and more than {_JITTER:g} of retry_period ({settings.retry_period:g}): a "
            "replica must stop before the others take it for dead, and not because of one late renewal."
        )
    if settings.drain_timeout < 0:
        raise OperatorError(f"settings.coordination.drain_timeout cannot be negative, got {settings.drain_timeout!r}.")
