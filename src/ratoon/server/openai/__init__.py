"""The dialect of OpenAI's completions, with vLLM's extensions: bodies, prompts, responses, routes."""
