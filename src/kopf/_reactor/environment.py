"""What the handling of objects needs of the operator; made once when the operator starts, and passed explicitly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kopf._client.api import APIClient
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._reactor.clock import Clock
from kopf._reactor.indexing import Gate, Indexers
from kopf._reactor.memos import Memos
from kopf._settings.settings import OperatorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """One running operator, from the point of view of the objects."""

    settings: OperatorSettings
    api: APIClient
    clock: Clock
    lifecycle: LifeCycleFn
    memos: Memos
    indices: Mapping[str, Any]
    indexers: Indexers
    gate: Gate
    """Closed until the indices are filled with what existed before the operator started."""
    comparable_versions: bool
    """Whether the server guarantees that resource versions can be compared (Kubernetes 1.35 and up)."""
