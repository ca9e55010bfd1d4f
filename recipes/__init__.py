"""Recipes of the checkpoints that this project trains itself."""
