"""`ninfer create`: rent a machine, check it, and end it again if anything fails."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.fleet.opening import VAST, add_json, open_fleet
from ninfer.errors import UsageError
from ninfer.fleet.clients import check_clients, write_clients
from ninfer.fleet.config import check_name
from ninfer.fleet.creating import Creation, create
from ninfer.fleet.options import (
    CapOptions,
    CreateOptions,
    OfferOptions,
    caps_of,
    need_of,
)
from ninfer.fleet.own import LOCAL, own_address
from ninfer.fleet.provision_options import ProvisionOptions, plan_of
from ninfer.fleet.provisioning import Record, installer, records
from ninfer.fleet.renting import Wish
from ninfer.fleet.sky import SKY
from ninfer.fleet.ssh_keys import public_key
from ninfer.options import check_choices

LOCAL_ROOT = "http://127.0.0.1:8080"
LOCAL_URL = f"{LOCAL_ROOT}/v1"


def build_parser() -> Parser:
    """The options of `ninfer create`."""
    parser = Parser(
        "create",
        "Rent a machine that destroys itself when its time or budget is over. Whatever fails, and "
        "on Ctrl-C, it is ended again; the next best offer is tried then. It serves afterwards, "
        "unless --bare is given.",
    )
    text = "number of an offer (default: the best that passes)"
    parser.add_argument("offer", metavar="OFFER", nargs="?", default="", help=text)
    for title, options in (
        ("machine", CreateOptions),
        ("criteria", OfferOptions),
        ("caps", CapOptions),
        ("provision", ProvisionOptions),
    ):
        add_options(parser.add_argument_group(title), options)
    add_json(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Create; the machine's name and price are on stdout when it can be used."""
    namespace = parse(build_parser(), argv)
    options, wanted = collect(namespace, CreateOptions), collect(namespace, OfferOptions)
    check_choices(options)
    check_name(options.name)
    if options.tries < 1:
        raise UsageError(f"--tries {options.tries}: must be at least 1")
    own = own_name(options.provider, options.host)
    sky = options.provider == SKY
    with open_fleet(ssh=own != LOCAL and not sky, own=SKY if sky else own) as fleet:
        settings = fleet.settings
        settings.refuse_old()
        settings.refuse_readable()
        caps = caps_of(settings, collect(namespace, CapOptions), wanted.max_price)
        need = need_of(settings, wanted, caps)
        served = collect(namespace, ProvisionOptions)
        check_clients(settings, served.write_client)
        plan = None if options.bare else plan_of(settings, served, wanted.gpu)
        wish = Wish(options.name, options.image, need.disk, need.setup_gb, caps)
        creation = Creation(
            need=need,
            wish=wish,
            public_key="" if own or sky else public_key(settings.path("NINFER_SSH_KEY")),
            api="" if sky else settings.text("VAST_URL"),
            offer=namespace.offer,
            force=options.force,
            keep_on_failure=options.keep_on_failure,
            tries=options.tries,
            install=None if plan is None else installer(plan),
        )
        row = create(fleet, fleet.provider(SKY if sky else own or VAST), creation)
        settings.write_base_url(LOCAL_URL)
        found = records(fleet, row)
        if found:
            write_clients(fleet, served.write_client, Record(**found[-1]), LOCAL_ROOT, os.environ)
        hours = (row.ends - fleet.clock.now()) / 3600
    if namespace.json:
        print(json.dumps({**asdict(row), "provision": found[-1] if found else None}))
        return 0
    if own:
        print(f"{row.name}: {own} is taken in; 'ninfer destroy {row.name}' clears it")
        return 0
    print(
        f"{row.name}: machine {row.machine_id}, {row.gpu}, costs ${row.price:.4f}/h; ends itself "
        f"in {hours:.1f} h; 'ninfer destroy {row.name}' when done"
    )
    return 0


def own_name(provider: str, host: str | None) -> str:
    """The provider of a machine of one's own, empty for the vendor. Raises UsageError."""
    if (provider == "ssh") != (host is not None):
        raise UsageError("--provider ssh and --host go together")
    if host is not None:
        own_address(host)
        return f"ssh:{host}"
    return LOCAL if provider == LOCAL else ""
