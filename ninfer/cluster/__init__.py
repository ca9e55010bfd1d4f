"""Several replicas of one engine: a gateway before them, Ray Serve below them, and a simulator."""
