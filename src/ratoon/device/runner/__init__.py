"""Turns step plans into step results."""
