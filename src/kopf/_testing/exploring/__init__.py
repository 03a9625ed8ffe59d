"""The built-in adversary: one story is told many times, each time with other trouble, and must end the same."""
