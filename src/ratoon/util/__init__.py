"""Small things that any room may use: sizes as text, whole-or-nothing files, the cache folder, progress."""
