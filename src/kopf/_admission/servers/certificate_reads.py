"""How often the webhook servers of this process have read their certificates, and how often they could not."""

from __future__ import annotations


class CertificateReads:
    """The counts; the metrics show them."""

    def __init__(self) -> None:
        self.total = 0
        self.errors = 0


READS = CertificateReads()
