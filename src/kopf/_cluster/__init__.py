"""
A Kubernetes API server in memory, which needs nothing installed: for tests, experiments, and demonstrations.

It stands apart from the rest of the framework and imports nothing of it. Its rooms, from the inside out:

* ``storage``: versioned bytes with a log of changes;
* ``kinds/``, ``schemas``: what objects there can be;
* ``objects``, ``patches``, ``writing``, ``reading``, ``selectors``, ``representations``, ``watching``: the verbs;
* ``discovery``, ``openapi``, ``api``: the Kubernetes API as a function from requests to answers;
* ``sessions``, ``webhooks``, ``admission/``: what is asked of others in the middle of a request;
* ``control/``: what happens on its own: garbage collection, the lives of namespaces and definitions, and workloads
  in the simulation;
* ``archive``: the data on disk;
* ``faults``, ``admin``, ``http``, ``credentials``, ``server``: how it is served, disturbed, and run.
"""
from __future__ import annotations

from .admission.reviewing import AdmissionCall
from .archive import ArchiveError
from .faults import FaultRule, Faults
from .server import LocalCluster

__all__ = ["AdmissionCall", "ArchiveError", "FaultRule", "Faults", "LocalCluster"]
