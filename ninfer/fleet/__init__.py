"""Machines for rent and of one's own: found, started, watched, and ended for certain."""
