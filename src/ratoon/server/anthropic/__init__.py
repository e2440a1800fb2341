"""The dialect of Anthropic's Messages API: bodies, responses, routes."""
