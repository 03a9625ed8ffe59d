"""Indexing: in-memory overviews of objects, kept up to date by the indexing functions."""
