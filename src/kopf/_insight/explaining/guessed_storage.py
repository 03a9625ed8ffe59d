"""
The storage of an operator's state on an object, guessed from the object.

Startup handlers change the settings of the storage, but only in a running operator. Without one, the prefix of the
annotations, the field of the status, and the finalizer are guessed from the object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kopf._settings.settings import PersistenceSettings
from kopf._storage.annotation_names import KNOWN_PREFIXES, is_mark
from kopf._storage.diffbase import AnnotationsDiffBaseStorage, MultiDiffBaseStorage, StatusDiffBaseStorage
from kopf._storage.progress import SmartProgressStorage
from kopf._values import codec
from kopf._values.fields import FieldPath
from kopf._values.objects import KubeObject

_LAST_HANDLED = "last-handled-configuration"


def adapt_persistence(settings: PersistenceSettings, obj: KubeObject) -> list[str]:
    """Change the settings to match the object. Return notes on the guesses."""
    prefixes = sorted(_list_prefixes(obj.head.annotations or {}), key=lambda item: (item not in KNOWN_PREFIXES, item))
    stanza = next(_list_stanzas(obj), None)
    notes = [*_adapt_storages(settings, prefixes, stanza)]
    finalizers = obj.head.finalizers or []
    similar = [item for item in finalizers if "kopf" in item.lower() or item.partition("/")[0] in prefixes]
    if settings.finalizer not in finalizers and len(similar) == 1:
        settings.finalizer = similar[0]
        notes.append(f"The finalizer of the operator seems to be {similar[0]!r}.")
    return notes


def _adapt_storages(settings: PersistenceSettings, prefixes: list[str], stanza: FieldPath | None) -> Iterator[str]:
    if stanza is None and (not prefixes or prefixes[0] in KNOWN_PREFIXES):
        return  # the defaults fit
    prefix = prefixes[0] if prefixes else next(iter(KNOWN_PREFIXES))
    base = AnnotationsDiffBaseStorage(prefix=prefix)
    if stanza is None:
        settings.diffbase_storage = base
        settings.progress_storage = SmartProgressStorage(prefix=prefix)
    else:
        settings.diffbase_storage = MultiDiffBaseStorage([base, StatusDiffBaseStorage(field=stanza)])
        settings.progress_storage = SmartProgressStorage(prefix=prefix, field=(*stanza[:2], "progress"))
        yield f"The state of the operator seems to be kept in the field '{'.'.join(stanza[:2])}'."
    if prefixes and prefix not in KNOWN_PREFIXES:
        yield f"The state of the operator seems to be kept in the annotations under {prefix!r}."
    if len(prefixes) > 1:
        yield f"There are the states of other operators, too, under {', '.join(map(repr, prefixes[1:]))}."


def _list_prefixes(annotations: Mapping[str, str]) -> set[str]:
    """List the prefixes with the mark of the framework, or with the last handled state."""
    names = [name.rpartition("/") for name in annotations if is_mark(name) or name.endswith(f"/{_LAST_HANDLED}")]
    return {prefix for prefix, _, _ in names if prefix}


def _list_stanzas(obj: KubeObject) -> Iterator[FieldPath]:
    """List the fields of the last handled state in the status, or where it would be beside the progress."""
    try:
        status = obj.get("status")
    except ValueError:  # it cannot be decoded
        return
    for name, stanza in status.items() if isinstance(status, Mapping) else ():
        if isinstance(stanza, Mapping) and (_LAST_HANDLED in stanza or _has_records(stanza.get("progress"))):
            bases = [key for key, value in stanza.items() if isinstance(value, str) and _is_state(value)]
            yield ("status", name, bases[0] if len(bases) == 1 else _LAST_HANDLED)


def _has_records(progress: Any) -> bool:
    records = progress.values() if isinstance(progress, Mapping) else ()
    return any(isinstance(record, Mapping) and "started" in record for record in records)


def _is_state(text: str) -> bool:
    try:
        return isinstance(codec.decode(text), dict)
    except ValueError:
        return False
