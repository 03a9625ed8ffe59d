"""What the project depends on has no known holes: neither the lowest versions it accepts, nor the installed ones."""

from __future__ import annotations

import importlib.metadata
import pathlib
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADVISORIES: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "tools" / "advisories.toml").read_text())
#: The versions of the clients are up to users, as their logins are borrowed; those of tests and docs are ours.
EXTRAS = PROJECT["optional-dependencies"].keys() - {"docs", "test", "full-auth"}
REQUIREMENTS = [
    requirement
    for lines in (PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in sorted(EXTRAS)))
    for requirement in map(Requirement, lines)
]


def _get_lowest(requirement: Requirement) -> Version:
    (lowest,) = [Version(item.version) for item in requirement.specifier if item.operator == ">="]
    return lowest


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda item: item.name)
def test_known_holes(requirement: Requirement) -> None:
    advisory = ADVISORIES[canonicalize_name(requirement.name)]
    versions = [_get_lowest(requirement)]
    try:
        versions.append(Version(importlib.metadata.version(requirement.name)))
    except importlib.metadata.PackageNotFoundError:
        assert requirement.marker is not None or requirement.name in {"prometheus-client", "uvloop"}
    assert min(versions) >= Version(advisory.get("fixed", "0")), advisory.get("advisories")
    for version in advisory.get("affected", ()):
        assert version not in requirement.specifier, advisory["advisories"]


def test_nothing_is_outdated_in_the_list() -> None:
    assert ADVISORIES.keys() == {canonicalize_name(requirement.name) for requirement in REQUIREMENTS}
    assert all("checked" in advisory for advisory in ADVISORIES.values())
