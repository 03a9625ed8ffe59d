"""
A Kubernetes API server in memory, which needs nothing installed: for tests, experiments, and demonstrations.

It stands apart from the rest of the framework and imports nothing of it. Its rooms, from the outside in; each imports
only from those below it:

* ``cluster``, ``server``: the cluster as its users see it, and everything put together;
* ``clients/``: the objects for those who are in the same process;
* ``http/``: connections; it knows nothing of what is stored;
* ``control/``: what happens on its own: garbage collection, the lives of namespaces and definitions, and workloads
  in the simulation;
* ``api/``: the Kubernetes API as a function from requests to answers;
* ``writes/``, ``reads/``: the verbs;
* ``builtin_kinds``: the built-in kinds with all that is special of them, by ``validation/``;
* ``custom_resources/``: the kinds that are defined by their users;
* ``faults/``: trouble on demand;
* ``access/``, ``admission/``: who may do what, and the webhooks that are asked in the middle of a write;
* ``kinds/``: what a kind is, and what its objects consist of;
* ``cel/``, ``encodings``, ``patches``: expressions and formats;
* ``store/``: versioned bytes with a log of changes, which know nothing of Kubernetes, and their copy on disk.

What all of them use: ``requests`` for what is asked, by whom, and what is answered; ``statuses`` for refusals,
``codec`` for JSON, ``ages`` for the time, and ``sessions`` for requests that have to wait for somebody else.
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
