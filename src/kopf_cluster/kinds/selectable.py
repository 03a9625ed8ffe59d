"""
The fields by which objects of built-in kinds can be selected: where their values are, and what absent ones mean.

The server selects by the values in memory, where nothing is absent: there are zeros of the types. The names are not
always those of the fields. See "Field Selectors" of the Kubernetes documentation.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Final

from kopf_cluster import jsonpaths


@dataclasses.dataclass(frozen=True, slots=True)
class Selectable:
    """A field that can be selected by."""

    paths: tuple[jsonpaths.Path, ...]
    """Where the value is: the first of them that is there, and is not empty."""
    zero: str = ""
    """What there is if it is not there."""

    def show(self, obj: Any) -> str:
        return next((text for path in self.paths if (text := path.show(obj))), self.zero)


# By their names in selectors. No other kinds have fields of these names with other meanings.
_PATHS: Final = {
    "source": ("source.component", "reportingComponent"),
    "status.podIP": ("status.podIPs[0].ip", "status.podIP"),
    "status.successful": ("status.succeeded",),
}
_ZEROS: Final = {
    "spec.hostNetwork": "false", "spec.unschedulable": "false", "status.replicas": "0", "status.successful": "0",
}


def make_selectable(field: str) -> Selectable:
    """Make a field of its name, as it is in objects as they are stored."""
    return Selectable(tuple(map(jsonpaths.parse, _PATHS.get(field, (field,)))), _ZEROS.get(field, ""))
