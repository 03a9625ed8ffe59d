"""Storage: the persisted state on the objects, and its form."""
