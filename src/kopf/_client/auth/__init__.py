"""Authentication: where the credentials come from, and where they are kept."""
