"""`ninfer kit`: kernels compiled ahead of time for one architecture, as a file to install."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ninfer.cli.arguments import (
    Parser,
    Subparser,
    add_artifact,
    add_options,
    collect,
    parse,
    path_of,
)
from ninfer.errors import UsageError
from ninfer.kits.home import current_link, home
from ninfer.kits.options import (
    ARCHITECTURES,
    BuildOptions,
    InstallOptions,
    StartOptions,
    check_build,
)
from ninfer.kits.urls import download, kit_url
from ninfer.log import configure


def build_parser() -> Parser:
    """The subcommands of `ninfer kit`."""
    parser = Parser(
        "kit",
        "A kit holds the kernels of both tiers, compiled for one architecture and one stack, with "
        "the package that they belong to. With it nothing is compiled at the first start.",
    )
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="build|verify|install|info|prove|start|url",
        parser_class=Subparser,
    )
    build = commands.add_parser("build", description="Compile a kit; needs no card.")
    add_options(build, BuildOptions)
    verify = commands.add_parser("verify", description="Check every byte of a kit.")
    _add_kit(verify)
    verify.add_argument("--sha256", default="", metavar="HEX", help="digest it must have")
    install = commands.add_parser(
        "install", description="Check a kit, then put it where `ninfer` finds it."
    )
    _add_kit(install)
    add_options(install, InstallOptions)
    info = commands.add_parser("info", description="Tell about a kit, or about those installed.")
    info.add_argument(
        "kit", nargs="?", type=_path, metavar="KIT", help="a kit (default: installed)"
    )
    prove = commands.add_parser(
        "prove",
        description="Start an engine twice with empty caches, without a kit and with it: with it "
        "no kernel may be compiled, and the ids must be the same. Prints one JSON object; exit "
        "status 1 when that was not shown.",
    )
    _add_kit(prove)
    add_artifact(prove, "ARTIFACT")
    add_options(prove, StartOptions)
    start = commands.add_parser(
        "start", description="Start an engine once; print as JSON what compiled, and the ids."
    )
    add_artifact(start, "ARTIFACT")
    add_options(start, StartOptions)
    url = commands.add_parser("url", description="Print where the kit of a card is published.")
    url.add_argument("card", metavar="CARD", help="name of a card, or 80 to 120")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run one subcommand."""
    namespace = parse(build_parser(), argv)
    configure("info")
    return {
        "build": _build,
        "verify": _verify,
        "install": _install,
        "info": _info,
        "prove": _prove,
        "start": _start,
        "url": _url,
    }[namespace.command](namespace)


def _path(text: str) -> Path:
    return path_of("KIT", text)


def _add_kit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kit", metavar="KIT", help="file, or http(s) address of one")


def _build(namespace: argparse.Namespace) -> int:
    options = collect(namespace, BuildOptions)
    check_build(options)

    from ninfer.bench.machine import revision
    from ninfer.kits.build import build, summary

    built = build(options, revision(Path(__file__).parent), _say)
    print(summary(built))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _verify(namespace: argparse.Namespace) -> int:
    from ninfer.kits.install import verify

    with download(namespace.kit) as archive:
        manifest = verify(archive, namespace.sha256)
    print(f"{manifest.id}: {len(manifest.files)} files, {manifest.bytes:,} bytes, all as listed")
    return 0


def _install(namespace: argparse.Namespace) -> int:
    options = collect(namespace, InstallOptions)

    from ninfer.kits.install import description, install
    from ninfer.kits.stack import Stack
    from ninfer.kits.use import card

    with download(namespace.kit) as archive:
        kit = install(
            archive,
            options.folder or home(),
            Stack.here(),
            card(),
            sha256=options.sha256,
            force=options.force,
        )
    print(description(kit))
    return 0


def _info(namespace: argparse.Namespace) -> int:
    from ninfer.kits.archive import read_manifest
    from ninfer.kits.install import damaged, description, installed

    if namespace.kit is not None and namespace.kit.is_file():
        manifest = read_manifest(namespace.kit)
        print(manifest.to_json(), end="")
        return 0
    links = [current_link(home(), architecture) for architecture in ARCHITECTURES]
    folders = (
        [namespace.kit] if namespace.kit else [link.resolve() for link in links if link.exists()]
    )
    if not folders:
        raise UsageError(f"no kit is installed in {home()}; 'ninfer kit install FILE' does that")
    bad = []
    for folder in folders:
        kit = installed(folder)
        print(description(kit))
        bad += [f"{folder / path}: not as it was installed" for path in damaged(kit)]
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


def _prove(namespace: argparse.Namespace) -> int:
    options = collect(namespace, StartOptions)

    from ninfer.kits.prove import prove

    with download(namespace.kit) as archive:
        found = prove(archive, namespace.artifact, options)
    return _told(found, options.json, bool(found["proven"]))


def _start(namespace: argparse.Namespace) -> int:
    options = collect(namespace, StartOptions)

    from ninfer.kits.start import start

    return _told(start(namespace.artifact, options), options.json, True)


def _told(values: dict[str, object], file: Path | None, good: bool) -> int:
    text = json.dumps(values)
    if file is not None:
        file.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if good else 1


def _url(namespace: argparse.Namespace) -> int:
    print(kit_url(namespace.card))
    return 0
