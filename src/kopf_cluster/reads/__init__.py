"""
Reads: lists in pages, selectors, forms of answers, and watch streams.
"""
