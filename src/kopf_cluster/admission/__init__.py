"""
Admission webhooks: their selection, the reviews, and the outcomes.
"""
