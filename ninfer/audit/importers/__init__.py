"""Stored responses of other tools, read by the formats that they document."""

from ninfer.audit.importers.detect import read_responses

__all__ = ["read_responses"]
