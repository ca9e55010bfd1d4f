"""The OpenAI protocols."""
