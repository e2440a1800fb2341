"""What a chat answer consists of: reasoning, text and tool calls, and how each family of models writes them.

Streams of text go in, events come out; tools go in, a grammar for their calls comes out. Nothing here knows
HTTP, an engine or the fields of any API.
"""
