"""What a user may ask of `ninfer provision`: defaults, help, and the plan that comes of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.cards import Card, cards_named
from ninfer.errors import UsageError
from ninfer.fleet.config import Settings
from ninfer.fleet.kit_choice import choose_kit
from ninfer.fleet.plans import Plan, Source
from ninfer.fleet.profiles import check_card, default_model, model_named, profile
from ninfer.fleet.uploads import digest_of
from ninfer.options import option

_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class ProvisionOptions:
    """What is put on a machine and how it serves."""

    model: str = option(
        "",
        "published artifact, or tiny",
        metavar="NAME",
        unset="$NINFER_MODEL, else nvfp4-27b on Blackwell, qwen38-27b elsewhere, tiny without card",
    )
    artifact: Path | None = option(
        None, "file to upload in its place", metavar="FILE", unset="downloaded there"
    )
    kit: str = option(
        "",
        "kit: a file here or an address",
        metavar="KIT",
        unset="$NINFER_KIT_URL; built there if $NINFER_KIT_SHA256 is blank",
    )
    kit_sha256: str = option(
        "", "its SHA-256", metavar="HEX", unset="$NINFER_KIT_SHA256, or that of the file"
    )
    python: str = option(
        "",
        "interpreter on the machine that has the kit's packages",
        metavar="PATH",
        unset="a new environment with them",
    )
    no_card: bool = option(False, "serve on the machine's CPU")
    serve_port: int = option(8080, "port of the server on the machine's loopback", metavar="N")
    serve_option: tuple[str, ...] = option(
        (),
        "word for 'ninfer serve' after those of the card's profile, as in --serve-option=--cors; "
        "repeatable",
        metavar="WORD",
    )
    write_client: tuple[str, ...] = option(
        (),
        "configure a client for the tunnel's address, now and whenever a machine is provisioned; "
        "repeatable",
        metavar="CLIENT",
    )


def plan_of(settings: Settings, options: ProvisionOptions, gpu: str) -> Plan:
    """The plan for a card, by any of its names. Raises UsageError before anything is rented."""
    cards = [] if options.no_card else cards_named(gpu)
    if not cards and not options.no_card:
        raise UsageError(f"card {gpu!r}: unknown to this version; --no-card serves on the CPU")
    card = min(cards, key=lambda card: card.memory_gib) if cards else None
    model = model_named(options.model or settings.text("NINFER_MODEL") or default_model(card))
    check_card(model, card)
    if not 0 < options.serve_port < 65536:
        raise UsageError(f"--serve-port {options.serve_port}: must be 1..65535")
    words = (*profile(model, card), *options.serve_option)
    if any("\n" in word for word in (*words, options.python)):
        raise UsageError("--serve-option: a word has no line breaks")
    return Plan(
        kit=_kit(settings, options, card.capability if card else 0),
        model=model,
        options=words,
        key=_key(settings),
        architecture=card.capability if card else 0,
        python=options.python,
        artifact=options.artifact,
        artifact_sha256=digest_of(options.artifact) if options.artifact else "",
        port=options.serve_port,
    )


def card_of(name: str) -> Card | None:
    """The card of that name with the least memory; None for one that nobody knows."""
    return min(cards_named(name), key=lambda card: card.memory_gib, default=None)


def _key(settings: Settings) -> str:
    key = settings.secret("NINFER_API_KEY")
    if key.split() != [key]:
        raise UsageError("NINFER_API_KEY: a key is one word without white space")
    return key


def _kit(settings: Settings, options: ProvisionOptions, architecture: int) -> Source:
    if options.kit:
        return _named("--kit", options.kit, options.kit_sha256 or _digest(settings))
    url = settings.text("NINFER_KIT_URL")
    if url and not url.startswith(("http://", "https://")):
        return _named("NINFER_KIT_URL", url, options.kit_sha256 or _digest(settings))
    if options.kit_sha256:
        raise UsageError("--kit-sha256: is the digest of --kit, which is missing")
    choice = choose_kit(settings, _nowhere)
    if not choice.builds:
        return Source(None, choice.url, choice.sha256, choice.token)
    if not architecture:
        raise UsageError("NINFER_KIT_SHA256 is blank: kits are built for a card; give --kit")
    where = (settings.text("NINFER_SRC_URL"), settings.text("NINFER_SRC_BRANCH"))
    return Source(None, "", "", build=where)


def _digest(settings: Settings) -> str:
    return settings.text("NINFER_KIT_SHA256").strip()


def _nowhere() -> str:
    raise UsageError(
        "no kit to install: give --kit FILE, or NINFER_KIT_URL and NINFER_KIT_SHA256; a blank "
        "NINFER_KIT_SHA256 builds one on the machine"
    )


def _named(flag: str, kit: str, digest: str) -> Source:
    digest = digest.lower()
    if digest and not (len(digest) == 64 and set(digest) <= _HEX):
        raise UsageError(f"--kit-sha256 {digest}: must be 64 hexadecimal digits")
    if kit.startswith(("http://", "https://")):
        if not digest:
            raise UsageError(f"{flag} {kit}: --kit-sha256 must say what it is to be")
        return Source(None, kit, digest)
    path = Path(kit)
    found = digest_of(path)
    if digest and found != digest:
        raise UsageError(f"{flag} {kit}: its SHA-256 is {found}, not {digest}")
    return Source(path, "", found)
