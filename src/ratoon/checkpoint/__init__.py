"""Model files: finding and fetching them, and reading what is in them, without knowing what it computes."""
