"""Health: whether the operator really operates, and who can ask about it."""
