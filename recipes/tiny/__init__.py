"""Data, tokenizer and training of the demo checkpoints `tiny` and `tiny-moe`."""
