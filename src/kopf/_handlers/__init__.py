"""What users declare: handlers, their filters and registries, and how one function is invoked."""
