"""Guessing what comes next, so that one step can verify several tokens instead of computing one.

Before a step is planned, `Speculation.propose` asks a `Drafter` for guesses and keeps those that should pay;
after it, `Speculation.learn` sees which were right and what the step cost. Nothing here can change an answer:
a draft becomes output only if it is the very token that would have been computed in its place.
"""
