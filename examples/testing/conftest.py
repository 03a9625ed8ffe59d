"""What the tests share: the registrar is faked, and so is what happens there."""

import dataclasses
import datetime

import pytest
import registrar


@dataclasses.dataclass
class Registrations:
    """A registrar in memory. Its certificates are for sixty hours."""

    domains: set = dataclasses.field(default_factory=set)
    certificates: list = dataclasses.field(default_factory=list)
    is_down: bool = False

    async def register(self, domain):
        self._check()
        self.domains.add(domain)
        return f"id-{domain}"

    async def release(self, domain):
        self._check()
        self.domains.discard(domain)

    async def issue_certificate(self, domain):
        self._check()
        self.certificates.append(domain)
        return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=60)).isoformat()

    def _check(self):
        if self.is_down:
            raise registrar.RegistrarError("503")


@pytest.fixture(autouse=True)
def registrations(monkeypatch):
    fake = Registrations()
    for name in ("register", "release", "issue_certificate"):
        monkeypatch.setattr(registrar, name, getattr(fake, name))
    return fake
