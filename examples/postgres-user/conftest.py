"""The server is faked: neither it nor its client library is needed for the tests."""

import dataclasses
import sys

import pytest


class UnavailableError(Exception):
    pass


class NoSuchRoleError(Exception):
    pass


@dataclasses.dataclass
class FakeServer:
    """It is there instead of the module ``postgres``. The roles outlive the operator."""

    MAX_NAME = 63
    UnavailableError = UnavailableError
    NoSuchRoleError = NoSuchRoleError

    passwords: dict[str, str] = dataclasses.field(default_factory=dict)
    groups: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    is_down: bool = False

    def ensure_role(self, name, password, groups):
        self._check()
        if unknown := set(groups) - {"readers", "writers"}:
            raise NoSuchRoleError(*unknown)
        self.passwords[name] = password
        self.groups[name] = list(groups)

    def drop_role(self, name):
        self._check()
        self.passwords.pop(name, None)
        self.groups.pop(name, None)

    def _check(self):
        if self.is_down:
            raise UnavailableError("connection refused")


@pytest.fixture
def server(monkeypatch):
    fake = FakeServer()
    monkeypatch.setitem(sys.modules, "postgres", fake)
    return fake
