"""
All currently served kinds, by the parts of URLs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kopf_cluster.kinds.kind import Kind

CORE_VERSION: Final = "v1"


class Registry:
    """The served kinds, by group, version, and plural name; versions are kept in the order of preference."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self.terminating: set[str] = set()
        """The buckets of the kinds that are being deleted, and accept no new objects."""
        self._groups: dict[str, dict[str, dict[str, Kind]]] = {}
        for kind in kinds:
            self.add(kind)

    def copy(self) -> Registry:
        """Return an independent copy."""
        other = Registry()
        other.terminating = {*self.terminating}
        other._groups = {
            group: {version: {**kinds} for version, kinds in versions.items()}
            for group, versions in self._groups.items()
        }
        return other

    def add(self, kind: Kind) -> None:
        """Serve the kind, in place of another definition of the same kind and version."""
        versions = self._groups.setdefault(kind.group, {})
        versions.setdefault(kind.version, {})[kind.plural] = kind
        ordered = sorted(versions, key=version_priority)
        self._groups[kind.group] = {version: versions[version] for version in ordered}

    def discard(self, group: str, plural: str) -> None:
        """Stop serving the kind in all versions; empty versions and groups disappear, too."""
        versions = self._groups.get(group, {})
        for version in list(versions):
            versions[version].pop(plural, None)
            if not versions[version]:
                del versions[version]
        if not versions:
            self._groups.pop(group, None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._groups.get(group, {}).get(version, {}).get(plural)

    def find_by_kind(self, group: str, version: str, kind: str) -> Kind | None:
        return next((candidate for candidate in self.kinds(group, version) if candidate.kind == kind), None)

    def find_any_version(self, group: str, plural: str) -> Kind | None:
        """Find the kind in its most preferred version, or in the stored one if others need a conversion."""
        versions = self._groups.get(group, {})
        found = next((kinds[plural] for kinds in versions.values() if plural in kinds), None)
        if found is not None and found.converter is not None and found.storage_version in versions:
            return versions[found.storage_version].get(plural, found)
        return found

    def is_custom(self, group: str) -> bool:
        """Whether the group has no built-in kinds; it may be unknown."""
        return all(kind.custom for kinds in self._groups.get(group, {}).values() for kind in kinds.values())

    def groups(self) -> list[str]:
        """All groups, the core group (an empty string) included."""
        return list(self._groups)

    def versions(self, group: str) -> list[str]:
        """The versions of the group, the preferred one first; an empty list if there is no such group."""
        return list(self._groups.get(group, ()))

    def kinds(self, group: str, version: str) -> list[Kind]:
        return list(self._groups.get(group, {}).get(version, {}).values())

    def unique_kinds(self) -> Iterator[Kind]:
        """Yield every kind once, in its most preferred version."""
        seen: set[str] = set()
        for versions in list(self._groups.values()):
            for kinds in list(versions.values()):
                for kind in list(kinds.values()):
                    if kind.bucket not in seen:
                        seen.add(kind.bucket)
                        yield self.find_any_version(kind.group, kind.plural) or kind


_VERSION: Final = re.compile(r"v(?P<major>\d+)((?P<stage>alpha|beta)(?P<minor>\d+))?", re.ASCII)
_STAGES: Final = {None: 0, "beta": 1, "alpha": 2}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Order versions as Kubernetes does: GA, beta, alpha, each by numbers downwards; then all others by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return 3, 0, 0, version
    return _STAGES[match["stage"]], -int(match["major"]), -int(match["minor"] or 0), ""
