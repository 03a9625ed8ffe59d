"""Large objects: what to do when that what is to be kept on an object does not fit there."""

from __future__ import annotations

from kopf._settings.settings import PersistenceSettings
from kopf._values import codec
from kopf._values.objects import KubeObject

_OTHERS = frozenset({"apiVersion", "kind", "metadata", "status"})


def explain_full_annotations(obj: KubeObject, persistence: PersistenceSettings) -> str:
    """Say which storage takes the place, with which field of the object, and what can be done about it."""
    storage = type(persistence.diffbase_storage).__name__
    size, field = _find_largest_field(obj)
    return (
        f"The annotations are full (256 KiB in total): the last handled configuration is kept there by {storage}, and "
        f"its largest field {field!r} takes {max(1, round(size / 1024))} KiB. Leave it out, if no handlers need its "
        f"changes: settings.persistence.diffbase_storage = kopf.{storage}(ignored_fields=[{field!r}]). Or keep that "
        f"in the status: kopf.StatusDiffBaseStorage() there, and kopf.StatusProgressStorage() as "
        f"settings.persistence.progress_storage. Or remove some of the other annotations."
    )


def _find_largest_field(obj: KubeObject) -> tuple[int, str]:
    """Give the size in bytes and the name; of the essential fields, and of the annotations of others."""
    spec = obj.get("spec")
    fields = {key: value for key, value in obj.items() if key not in _OTHERS and key != "spec"}
    fields |= {f"spec.{key}": value for key, value in spec.items()} if isinstance(spec, dict) else {"spec": spec}
    annotations = obj.head.annotations or {}
    fields["metadata.annotations"] = {name: value for name, value in annotations.items() if "kopf" not in name}
    return max((len(codec.encode(value)), name) for name, value in fields.items())
