"""Developer scripts; run them as `python -m tools.NAME` from the repository root."""
