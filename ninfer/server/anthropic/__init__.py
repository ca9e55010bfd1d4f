"""The Anthropic protocol: Messages, and counting their tokens."""
