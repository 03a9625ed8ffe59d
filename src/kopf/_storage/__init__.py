"""Storage: what is persisted on the objects, and in which form."""
