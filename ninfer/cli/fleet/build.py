"""`ninfer build`: a kit built on the machine from a git ref."""

from collections.abc import Sequence
from pathlib import Path

from ninfer.cards import cards_named
from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_on, box_on, open_fleet
from ninfer.errors import UsageError
from ninfer.fleet.building import start_build, wait_build
from ninfer.fleet.contract import Contract
from ninfer.fleet.source import source_of
from ninfer.kits.options import ARCHITECTURES


def build_parser() -> Parser:
    """The options of `ninfer build`."""
    parser = Parser(
        "build",
        "Build a kit on the machine from the git ref $NINFER_SRC_BRANCH, of $NINFER_SRC_URL or of "
        "the checkout that ninfer runs from. The build goes on when this command ends.",
    )
    add_on(parser)
    known = ", ".join(map(str, ARCHITECTURES))
    text = f"compute capability times ten, one of {known} (default: that of the machine's card)"
    parser.add_argument("--architecture", type=int, metavar="NN", help=text)
    parser.add_argument(
        "--limit", type=float, default=60.0, metavar="MIN", help="minutes to wait (default: 60)"
    )
    parser.add_argument("--no-wait", action="store_true", help="start it and end")
    return parser


def main(argv: Sequence[str]) -> int:
    """Build and wait; the kit's path and digest are on stdout."""
    namespace = parse(build_parser(), argv)
    if namespace.limit <= 0:
        raise UsageError(f"--limit {namespace.limit}: must be above 0")
    if namespace.architecture not in (None, *ARCHITECTURES):
        known = ", ".join(map(str, ARCHITECTURES))
        raise UsageError(f"--architecture {namespace.architecture}: must be one of {known}")
    with open_fleet(ssh=True) as fleet, box_on(fleet, namespace.on) as (row, box):
        architecture = namespace.architecture or architecture_of(row)
        settings = fleet.settings
        url, ref = settings.text("NINFER_SRC_URL"), settings.text("NINFER_SRC_BRANCH")
        source = source_of(url, ref, Path(__file__).parent)
        start_build(box, row.name, architecture, source)
        fleet.say(f"{row.name}: building for sm_{architecture} from {source.revision or ref}")
        if namespace.no_wait:
            return 0
        kit = wait_build(box, row.name, fleet.clock, namespace.limit * 60)
    print(f"{kit.path} sha256:{kit.sha256} ({kit.size:,} bytes); 'ninfer kit-pack' brings it here")
    return 0


def architecture_of(row: Contract) -> int:
    """That of the machine's card. Raises UsageError when its name says nothing."""
    cards = cards_named(row.gpu)
    if not cards:
        raise UsageError(f"{row.name}: card {row.gpu!r} is not known; give --architecture")
    return cards[0].capability
