"""The dialect of OpenAI's Responses API: bodies, items, responses, what is kept of them, routes."""
