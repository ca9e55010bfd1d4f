"""What a response was worth, from its text alone; works on responses of any server."""

from ninfer.audit.importers import read_responses
from ninfer.audit.options import AuditOptions, CompareOptions, check_audit
from ninfer.audit.record import Drafts, Origin, StoredResponse, Timings, TokenCounts
from ninfer.audit.response_file import ResponseFile
from ninfer.audit.summary import Audit
from ninfer.audit.verdict import Verdict, judge, judge_all

__all__ = [
    "Audit",
    "AuditOptions",
    "CompareOptions",
    "Drafts",
    "Origin",
    "ResponseFile",
    "StoredResponse",
    "Timings",
    "TokenCounts",
    "Verdict",
    "check_audit",
    "judge",
    "judge_all",
    "read_responses",
]
