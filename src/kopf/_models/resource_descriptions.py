"""What is said of a kind in its class."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kopf._models.markers import Rule


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceDescription:
    """The names of a kind in one version, and of which types its parts are; see the class keywords for the rest."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    scope: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    columns: Mapping[str, str | Mapping[str, Any]]
    scale: tuple[str, ...] | None
    selectable: tuple[str, ...]
    rules: tuple[Rule, ...]
    storage: bool
    served: bool
    deprecated: bool | str
    spec: Any
    status: Any
    cls: type[Any]

    @property
    def title(self) -> str:
        """What the kind is called in messages."""
        return f"{self.kind} of {self.group}/{self.version}"

    @property
    def name(self) -> str:
        """The name of its definition."""
        return f"{self.plural}.{self.group}"
