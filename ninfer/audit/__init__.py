"""What a response was worth, from its text alone; works on responses of any server."""
