"""Health: whether the operator really works, and the server that tells it."""
