"""The audit as one HTML page that needs nothing else."""

from ninfer.audit.report.comparison import comparison_page
from ninfer.audit.report.page import page_of

__all__ = ["comparison_page", "page_of"]
