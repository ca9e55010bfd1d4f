"""`ninfer kit-url`: where the kit of a card comes from, by the variables."""

from collections.abc import Sequence

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import read_settings
from ninfer.fleet.kit_choice import choose_kit
from ninfer.fleet.options import OfferOptions
from ninfer.kits.urls import kit_url


def build_parser() -> Parser:
    """The options of `ninfer kit-url`."""
    parser = Parser(
        "kit-url",
        "Print the address of the kit that a machine would get: that of the private store, of "
        "$NINFER_KIT_URL, or that of 'ninfer kit url'. No address holds a token.",
    )
    card = OfferOptions().gpu
    text = f"name of a card, or 80 to 120 (default: {card})"
    parser.add_argument("card", nargs="?", default=card, metavar="CARD", help=text)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the address, or that the machine builds its kit."""
    namespace = parse(build_parser(), argv)
    settings = read_settings()
    choice = choose_kit(settings, lambda: kit_url(namespace.card), unchecked=True)
    if choice.builds:
        ref = settings.text("NINFER_SRC_BRANCH")
        print(f"none: NINFER_KIT_SHA256 is blank, so it is built on the machine from {ref}")
    else:
        print(choice.url)
    return 0
