"""Recording: what an operator has read, written, and called, as a file that can be replayed."""
