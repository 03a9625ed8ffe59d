"""Changes: how an object has changed, what to do about it, and how to save that."""
