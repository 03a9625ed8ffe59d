"""Plain data of Kubernetes and of the framework: no I/O, no event loop, no settings."""
