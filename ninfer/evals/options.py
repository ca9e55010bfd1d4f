"""What a user may ask of an evaluation: defaults, help and checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError
from ninfer.options import option

# As many sequences as the engine runs at once.
MOST_CONCURRENT: Final = 64


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """Which items are answered, how many at once, and where the outcomes go."""

    suite: str | None = option(
        None, "name of a suite, or path of a folder with one; see 'ninfer evals list'"
    )
    task: tuple[str, ...] = option((), "only this task; repeatable", metavar="NAME", unset="all")
    text_only: bool = option(False, "leave out items with images or videos")
    limit: int | None = option(None, "only the first items of each task", metavar="N", unset="all")
    output: Path | None = option(
        None,
        "result file; outcomes that it already holds for the same items, model and settings are "
        "not asked for again. For suites of EvalScope the folder of its results",
        metavar="PATH",
    )
    concurrency: int = option(8, "items that are answered at once, 1..64", metavar="N")
    max_context: int | None = option(
        None,
        "tokens one sequence may hold",
        metavar="N",
        unset="what the longest item may need",
    )
    json: bool = option(False, "print one JSON object in place of the table")


@dataclass(frozen=True, slots=True)
class ServedEvalOptions:
    """What only suites of EvalScope have, which ask a server."""

    model: str | None = option(
        None, "model name", metavar="NAME", unset="the first that the server lists"
    )
    key_env: str = option(
        "NINFER_API_KEY", "variable that holds the server's key", metavar="VARIABLE"
    )
    data: Path | None = option(
        None,
        "folder of NAME.jsonl files with the items of general-qa or general-mcq, in the form that "
        "EvalScope documents",
        metavar="FOLDER",
    )
    thinking: bool = option(True, "ask for answers without thinking")
    max_new: int | None = option(
        None, "tokens of an answer at most", metavar="N", unset="the suite's own limit"
    )
    evalscope: Path | None = option(
        None,
        "Python of the environment that has EvalScope",
        metavar="PYTHON",
        unset="this one",
    )


@dataclass(frozen=True, slots=True)
class AcceptanceOptions:
    """Where the counts of `ninfer evals acceptance` go besides the table."""

    output: Path | None = option(None, "JSON file for the counts", metavar="FILE")


def check_served(options: EvalOptions, served: ServedEvalOptions) -> Path:
    """The folder for the results. Raises UsageError naming the option and the value."""
    check_evals(options)
    if options.output is None:
        raise UsageError("--output PATH is missing; EvalScope writes its results into that folder")
    if options.output.is_file():
        raise UsageError(f"--output {options.output}: is a file; EvalScope writes into a folder")
    if served.max_new is not None and served.max_new < 1:
        raise UsageError(f"--max-new {served.max_new}: must be positive")
    return options.output


def check_evals(options: EvalOptions) -> str:
    """The name of the suite. Raises UsageError naming the option and the value that is wrong."""
    if not options.suite:
        raise UsageError("--suite NAME is missing; see 'ninfer evals list'")
    for flag, value in (("--limit", options.limit), ("--max-context", options.max_context)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} {value}: must be positive")
    if not 1 <= options.concurrency <= MOST_CONCURRENT:
        raise UsageError(f"--concurrency {options.concurrency}: must be 1..{MOST_CONCURRENT}")
    return options.suite
