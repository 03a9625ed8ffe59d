"""
Traces: where an operator keeps its state on an object, as far as that can be seen from the object.

The settings are made by startup handlers, which are only called when an operator starts. Without it, the prefix of the
annotations, the field of the status, and the finalizer are guessed by what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kopf._settings.settings import PersistenceSettings
from kopf._storage.annotation_names import is_mark
from kopf._storage.diffbase import AnnotationsDiffBaseStorage, StatusDiffBaseStorage
from kopf._storage.progress import SmartProgressStorage
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject

_LAST_HANDLED = "last-handled-configuration"


def adapt_persistence(settings: PersistenceSettings, obj: KubeObject) -> list[str]:
    """Change the settings to those by which the object is handled, if that is to be seen; say what was guessed."""
    notes = [*_adapt_storages(settings, obj)]
    finalizers = obj.head.finalizers or []
    similar = [item for item in finalizers if "kopf" in item.lower()]
    if settings.finalizer not in finalizers and len(similar) == 1:
        settings.finalizer = similar[0]
        notes.append(f"The finalizer of the operator seems to be {similar[0]!r}.")
    return notes


def _adapt_storages(settings: PersistenceSettings, obj: KubeObject) -> Iterator[str]:
    annotations = obj.head.annotations or {}
    storage = settings.diffbase_storage
    if isinstance(storage, AnnotationsDiffBaseStorage) and storage.fetch_text(annotations) is not None:
        return
    stanza = next(_list_stanzas(obj), None)
    if stanza is not None:
        settings.diffbase_storage = StatusDiffBaseStorage(name=stanza)
        settings.progress_storage = SmartProgressStorage(name=stanza)
        yield f"The state of the operator seems to be kept in the status, under {stanza!r}."
        return
    prefixes = sorted(_list_prefixes(annotations))
    if prefixes:
        settings.diffbase_storage = AnnotationsDiffBaseStorage(prefix=prefixes[0])
        settings.progress_storage = SmartProgressStorage(prefix=prefixes[0])
        yield f"The state of the operator seems to be kept in the annotations under {prefixes[0]!r}."
    if len(prefixes) > 1:
        yield f"There are the states of other operators, too, under {', '.join(map(repr, prefixes[1:]))}."


def _list_prefixes(annotations: Mapping[str, str]) -> set[str]:
    """Those which are marked by the framework, or have the last handled state."""
    names = [name.rpartition("/") for name in annotations if is_mark(name) or name.endswith(f"/{_LAST_HANDLED}")]
    return {prefix for prefix, _, _ in names if prefix}


def _list_stanzas(obj: KubeObject) -> Iterator[str]:
    try:
        status = Body(obj).status
        for name in status:
            stanza = status.get(name)
            if isinstance(stanza, Mapping) and isinstance(stanza.get(_LAST_HANDLED), str):
                yield name
    except (ValueError, TypeError, AttributeError):  # it is not to be decoded, or not what a status is
        return
