"""One prompt on its way to an answer: what was asked for, how far it is, how it ended.

Requests are plain facts. The scheduler moves them; nothing here knows the cache, a step or a model.
"""
