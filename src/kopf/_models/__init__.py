"""Models of custom resources: types as schemas for the cluster, and as decoded arguments of handlers."""
