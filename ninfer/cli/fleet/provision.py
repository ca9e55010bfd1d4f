"""`ninfer provision`: make a machine serve; a rerun goes on where the last one was."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.fleet.create import LOCAL_ROOT, LOCAL_URL
from ninfer.cli.fleet.opening import add_json, add_name, open_fleet
from ninfer.errors import HostBrokenError
from ninfer.fleet.clients import check_clients, write_clients
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.locks import machine_lock
from ninfer.fleet.power import find, present
from ninfer.fleet.provider import Phase
from ninfer.fleet.provision_options import ProvisionOptions, plan_of
from ninfer.fleet.provisioning import Record, provision


def build_parser(name: str = "provision") -> Parser:
    """The options of `ninfer provision`, and of `ninfer restore`."""
    text = {
        "provision": "Make a machine serve: kit, packages, artifact, server, and one token of it. "
        "What is there already is not done again.",
        "restore": "Install the kit on a machine again and restart its server.",
    }[name]
    parser = Parser(name, text)
    add_name(parser)
    add_options(parser, ProvisionOptions)
    add_json(parser)
    return parser


def main(argv: Sequence[str], *, restore: bool = False) -> int:
    """Provision; the served models and the seconds of each stage are on stdout."""
    namespace = parse(build_parser("restore" if restore else "provision"), argv)
    options = collect(namespace, ProvisionOptions)
    with open_fleet(ssh=True) as fleet:
        settings = fleet.settings
        check_clients(settings, options.write_client)
        settings.refuse_old()
        settings.refuse_readable()
        row = find(fleet, namespace.name)
        plan = plan_of(settings, options, row.gpu)
        with machine_lock(fleet.store.folder, row.key, row.name):
            shot = present(fleet, row)
            if shot.phase is not Phase.RUNNING:
                raise HostBrokenError(
                    f"{row.name}: it is {shot.status}; 'ninfer up {row.name}' starts it",
                    category="",
                )
            record = provision(fleet, row, plan, restart=restore)
        settings.write_base_url(LOCAL_URL)
        after(fleet, options, record)
    print(json.dumps(asdict(record)) if namespace.json else summary(row.name, record))
    return 0


def after(fleet: Fleet, options: ProvisionOptions, record: Record) -> None:
    """Configure clients; the machine serves whatever comes of it."""
    write_clients(fleet, options.write_client, record, LOCAL_ROOT, os.environ)


def summary(name: str, record: Record) -> str:
    """Two lines about a provision."""
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in record.seconds.items())
    return (
        f"{name}: serves {', '.join(record.models)} with {record.resident_mib} MiB of memory and "
        f"{record.card_mib} MiB of the card's; a token took {record.round_trip:.2f} s\n"
        f"seconds: {stages}; 'ninfer tunnel --on {name}' gives clients {LOCAL_URL}"
    )
