"""Choosing tokens from logits: adjusting, filtering, drawing, and log-probabilities. One row at a time."""
