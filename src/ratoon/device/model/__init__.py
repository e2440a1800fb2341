"""The decoder: one transformer with switches, and where its weights lie in a checkpoint."""
