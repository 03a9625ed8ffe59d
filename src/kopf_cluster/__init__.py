"""
A Kubernetes API server in memory, which needs nothing installed: for tests, experiments, and demonstrations.

It stands apart from the rest of the framework and imports nothing of it. Its rooms, from the outside in:

* ``cluster``, ``server``: the cluster as its users see it, and everything put together;
* ``clients/``: the objects for those who are in the same process;
* ``http/``: connections, requests and answers; it knows nothing of what is stored;
* ``api/``: the Kubernetes API as a function from requests to answers;
* ``access/``: who may do what;
* ``trouble/``: faults on demand;
* ``control/``: what happens on its own: garbage collection, the lives of namespaces and definitions, and workloads
  in the simulation;
* ``admission/``: the webhooks that are asked in the middle of a write;
* ``writes/``, ``reads/``: the verbs;
* ``kinds/``, ``customs/``, ``cel/``: what objects there can be, built-in and custom, and what is right in them;
* ``data/``: versioned bytes with a log of changes, which know nothing of Kubernetes, and their copy on disk.

What all of them use: ``statuses`` for refusals, ``codec`` for JSON, ``jsonpaths``, ``ages`` for the time, and
``sessions`` for requests that have to wait for somebody else.
"""
from __future__ import annotations

from kopf_cluster.admission.reviewing import AdmissionCall
from kopf_cluster.audit import AuditRecord
from kopf_cluster.cluster import LocalCluster
from kopf_cluster.faults.faults import FaultRule, Faults
from kopf_cluster.observing import Observation
from kopf_cluster.statuses import APIStatus
from kopf_cluster.store.archive import ArchiveError

__all__ = [
    "APIStatus", "AdmissionCall", "ArchiveError", "AuditRecord", "FaultRule", "Faults", "LocalCluster", "Observation",
]
