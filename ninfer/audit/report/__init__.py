"""The audit as one HTML page that needs nothing else."""

from ninfer.audit.report.page import page_of

__all__ = ["page_of"]
