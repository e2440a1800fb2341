"""Text on its way to token ids and back: tokenizer, chat template, detokenizer, stop strings."""
