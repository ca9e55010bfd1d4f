"""`ninfer audit`: judge stored responses of any server, and say what they were worth."""

import json
from collections.abc import Sequence
from pathlib import Path

from ninfer.audit import Audit, AuditOptions, check_audit, judge, read_responses
from ninfer.audit.gains import COLUMNS as GAIN_COLUMNS
from ninfer.audit.options import SHOWN_PROBLEMS
from ninfer.audit.record import StoredResponse
from ninfer.audit.report import markdown_of, page_of
from ninfer.audit.tables import COLUMNS, OVERALL, PROBLEM_COLUMNS, problem_rows
from ninfer.cli.arguments import Parser, add_options, collect, parse, path_of
from ninfer.cli.output import item_progress, print_table, write_text


def build_parser() -> Parser:
    """The options of `ninfer audit`."""
    parser = Parser(
        "audit",
        "Judge responses: how they ended, whether they loop, whether they keep the contract of "
        "their fixture. Rates stand beside the verdict on what was written.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=lambda text: path_of("FILE", text),
        metavar="FILE",
        help="stored responses, a result of another tool, or a folder of EvalScope",
    )
    add_options(parser, AuditOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Audit files; exit status 1 when too few responses are usable."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, AuditOptions)
    check_audit(options)
    return show_audit(read_all(namespace.files), options)


def read_all(paths: Sequence[Path]) -> list[StoredResponse]:
    """The responses of several files in order."""
    return [response for path in paths for response in read_responses(path)]


def show_audit(responses: Sequence[StoredResponse], options: AuditOptions) -> int:
    """Judge responses, print and write the report; the exit status."""
    verdicts = []
    with item_progress("judging", len(responses)) as advance:
        for response in responses:
            verdicts.append(judge(response, run_code=options.run_code))
            advance()
    audit = Audit(verdicts, options.by)
    if options.json:
        print(json.dumps(audit.to_json(), indent=2))
    else:
        print_audit(audit)
    if options.html is not None:
        write_text("--html", options.html, page_of(audit))
    if options.markdown is not None:
        write_text("--markdown", options.markdown, markdown_of(audit))
    low = options.fail_under is not None and 100 * audit.usable_share < options.fail_under
    return 1 if low else 0


def print_audit(audit: Audit) -> None:
    """The tables: groups, modes, gains, and what cannot be used."""
    print_table(COLUMNS, [row.cells() for row in audit.rows])
    if audit.mode_rows and audit.by != "mode":
        print_table(("mode", *COLUMNS[1:]), [row.cells() for row in audit.mode_rows])
    told = [gain for gain in audit.gains if gain.both or gain.group == OVERALL] or audit.gains
    if told:
        print_table(GAIN_COLUMNS, [gain.cells() for gain in told])
    problems = problem_rows(audit.verdicts)
    if problems:
        print_table(PROBLEM_COLUMNS, problems[:SHOWN_PROBLEMS])
        if len(problems) > SHOWN_PROBLEMS:
            print(f"and {len(problems) - SHOWN_PROBLEMS} more; --json and --html have all of them")
    print(audit.sentence)
