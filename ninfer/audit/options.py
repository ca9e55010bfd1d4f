"""What a user may ask of an audit: defaults, help and checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.audit.tables import GROUPS
from ninfer.errors import UsageError
from ninfer.options import check_choices, option

# Rows of the list of unusable responses that a terminal shows.
SHOWN_PROBLEMS: Final = 40


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How responses are judged, and where the report goes."""

    by: str = option("category", "what makes the groups of the table", choices=tuple(GROUPS))
    html: Path | None = option(None, "also write the report as one HTML page", metavar="FILE")
    markdown: Path | None = option(None, "also write the tables as Markdown", metavar="FILE")
    json: bool = option(False, "print one JSON object in place of the tables")
    fail_under: float | None = option(
        None, "exit status 1 when less than X percent of the responses are usable", metavar="X"
    )
    run_code: bool = option(
        True,
        "do not run the tests of code that was asked for; such code then counts as not working",
    )


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How two sets of responses are compared, and where the report goes."""

    by: str = option("category", "what makes the groups of the table", choices=tuple(GROUPS))
    html: Path | None = option(None, "also write the report as one HTML page", metavar="FILE")
    json: bool = option(False, "print one JSON object in place of the table")
    run_code: bool = option(
        True,
        "do not run the tests of code that was asked for; such code then counts as not working",
    )


def check_audit(options: AuditOptions) -> None:
    """Raises UsageError naming the option and the value that is wrong."""
    share = options.fail_under
    if share is not None and not 0 <= share <= 100:
        raise UsageError(f"--fail-under {share}: must be 0..100")
    _check_folder("--markdown", options.markdown)
    check_report(options)


def check_report(options: AuditOptions | CompareOptions) -> None:
    """The same for what both have: groups, and a page whose folder exists."""
    check_choices(options)
    _check_folder("--html", options.html)


def _check_folder(flag: str, path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{flag} {path}: the folder does not exist")
