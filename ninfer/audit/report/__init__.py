"""The audit as one HTML page that needs nothing else, and its tables as Markdown."""

from ninfer.audit.report.comparison import comparison_page
from ninfer.audit.report.markdown import markdown_of
from ninfer.audit.report.page import page_of

__all__ = ["comparison_page", "markdown_of", "page_of"]
