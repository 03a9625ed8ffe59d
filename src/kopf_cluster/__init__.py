"""
A Kubernetes API server in memory, which needs nothing installed: for tests, experiments, and demonstrations.

It is independent of the rest of the framework, and imports nothing from it. These are its rooms, from the outside in;
each imports only from the rooms below it:

* ``cluster``, ``server``: the public interface, and the server as a whole;
* ``clients/``: access to the objects in the same process;
* ``http/``: connections; it knows nothing about the stored objects;
* ``control/``: the control loops: garbage collection, namespaces, definitions, and simulated workloads;
* ``api/``: the Kubernetes API as a function from requests to answers;
* ``writes/``, ``reads/``: the verbs;
* ``builtin_kinds``: the built-in kinds with their rules, by ``validation/``;
* ``custom_resources/``: custom resource definitions, and their kinds;
* ``faults/``: faults on demand;
* ``access/``, ``admission/``: authentication and authorization, and admission webhooks;
* ``kinds/``: the kinds, and the structure of their objects;
* ``cel/``, ``encodings``, ``patches``: expressions and formats;
* ``store/``: versioned bytes with a log of changes, independent of Kubernetes, and their copy on disk.

All rooms use ``requests`` for requests, users, and answers; ``statuses`` for refusals; ``codec`` for JSON; ``ages`` for
the time; and ``sessions`` for requests that wait for webhooks.
"""

from __future__ import annotations

from kopf_cluster.admission.reviewing import AdmissionCall
from kopf_cluster.audit import AuditRecord
from kopf_cluster.cluster import LocalCluster
from kopf_cluster.faults.fault_rules import FaultRule
from kopf_cluster.faults.faults import Faults
from kopf_cluster.server import Observation
from kopf_cluster.statuses import APIStatus
from kopf_cluster.store.archive import ArchiveError

__all__ = [
    "APIStatus",
    "AdmissionCall",
    "ArchiveError",
    "AuditRecord",
    "FaultRule",
    "Faults",
    "LocalCluster",
    "Observation",
]
