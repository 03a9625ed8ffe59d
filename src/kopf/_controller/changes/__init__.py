"""Changes: what has changed in an object, what is to be done about it, and how that is saved."""
