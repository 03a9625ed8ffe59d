"""Replay: what an operator reads, writes, and calls, is recorded to a file; and is done again, with no cluster."""
