"""Models of custom resources: their types as schemas for the cluster, and as decoded arguments for handlers."""
