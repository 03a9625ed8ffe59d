"""The settings of several replicas of one operator: either one of them works, or all of them share the work."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from kopf._values.operator_error import OperatorError

CoordinationMode = Literal["leader", "shards"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""The form of values that Kubernetes accepts for labels, parts of names, and namespaces."""

_JITTER = 1.2
"""The maximal ratio of the actual delay to the retry period: the jitter spreads the requests of replicas."""


@dataclasses.dataclass
class CoordinationSettings:
    """The coordination of several replicas of one operator by Leases. The names are the same as in ``client-go``."""

    mode: CoordinationMode | None = None
    """``leader``: one replica works, the others wait. ``shards``: all work, each on its part of the objects."""
    name: str = "kopf"
    """The name of the Lease: the same for all replicas of one operator, and different for other operators."""
    namespace: str | None = None
    """The namespace of the Leases; ``None`` is for the namespace of the pod or of the current context."""
    identity: str | None = None
    """The name of this replica; ``None`` is for the name of the pod, or of the host and the process."""
    lease_duration: int = 15
    """The time after the last renewal when other replicas take this one for dead, in whole seconds."""
    renew_deadline: float = 10.0
    """The time without a successful renewal until the replica stops all work, in seconds."""
    retry_period: float = 2.0
    """The time between renewals of the Lease, in seconds."""
    drain_timeout: float = 30.0
    """The time until the cancellation of handlers whose objects move to another replica, in seconds."""


def is_label(value: object) -> bool:
    """Tell if it is a valid name of a Lease with a label, or a valid namespace."""
    return isinstance(value, str) and _LABEL.fullmatch(value) is not None


def set_coordination(
    settings: CoordinationSettings, *, leader_election: bool | str | None, shards: bool | str | None
) -> None:
    """
    Set the mode by the given option; a string is the name of the Lease.

    Raises :class:`ValueError` if both options are given.
    """
    if leader_election and shards:
        raise ValueError("The replicas can either elect a leader or share the objects (shards), not both.")
    if option := leader_election or shards:
        settings.mode = "leader" if leader_election else "shards"
        settings.name = option if isinstance(option, str) else settings.name


def check_coordination(settings: CoordinationSettings) -> None:
    """Check that replicas with these settings are safe. Raises :class:`OperatorError` with the problem."""
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
