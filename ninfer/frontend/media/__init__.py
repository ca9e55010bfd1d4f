"""Media of messages: from a path, URL or data URI to the patches that a vision tower reads."""

from ninfer.frontend.media.fetch import SourceRules
from ninfer.frontend.media.limits import MediaLimits
from ninfer.frontend.media.load import MediaLoader

__all__ = ["MediaLimits", "MediaLoader", "SourceRules"]
