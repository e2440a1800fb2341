"""Prompts read as text: what in them keeps one request from sharing the prefix of another.

`read_log` turns logged or hand-written requests into `Prompt`s, and a `Linter` compares each with the
earlier ones. A rule is a way to rewrite both so that one kind of difference is gone; what the rewriting
gains in common text is what the difference costs. Knows no cache and no model.
"""
