"""The scope: the common parts of all passes over the objects of one resource, made once when it is first watched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kopf._controller.changes.object_memory import HandledStates
from kopf._controller.changes.selection import Candidates
from kopf._controller.rivals import Rivals
from kopf._controller.runtime import Runtime
from kopf._handlers.registry import HandlersOfResource
from kopf._logging.loggers import ObjectLogger
from kopf._storage.snapshots import Snapshots
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

if TYPE_CHECKING:
    from kopf._controller.background.spawning import Background


class ReconciliationScope:
    """
    The common parts of all passes over the objects of one resource; the setting of their observations.

    Large because it has no behaviour, only parts that others always need together.
    """

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        handlers: HandlersOfResource,
        *,
        background: Background | None,
        handled: HandledStates,
        user_code: AbstractContextManager[None],
    ) -> None:
        persistence = runtime.settings.persistence
        self.runtime = runtime
        self.resource = resource
        self.handlers = handlers
        self.candidates = Candidates(handlers)
        self.background = background
        self.handled = handled
        self.rivals = Rivals(runtime, resource)
        self.get_fresher: Callable[[str], KubeObject | None] = lambda key: None
        """Returns the state of an object that has come during its current pass, if any, by its key."""
        self.user_code = user_code
        self.persistence = persistence
        self.finalizer = persistence.finalizer
        self.indices = runtime.indices
        self.detects_changes = bool(handlers.changing)
        self.now = runtime.clock.now
        self.recall_memo, self.defer_memo = runtime.memos.recall, runtime.memos.defer
        self.snapshots = Snapshots(persistence.diffbase_storage, persistence.progress_storage, handlers.extra_fields)
        self.make_logger: Callable[..., ObjectLogger] = functools.partial(ObjectLogger, settings=runtime.settings)
        """Makes the logger of an object, which posts log records as events of the object."""
