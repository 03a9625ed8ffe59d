"""The declarations of users: handlers, their filters and registries, and how one function is invoked."""
