"""`ninfer tunnel`: a machine's server at one fixed local address, until Ctrl-C."""

import asyncio
from collections.abc import Sequence

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_on, open_fleet
from ninfer.errors import HostBrokenError, UsageError
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.own import LOCAL
from ninfer.fleet.power import find, present
from ninfer.fleet.sky import SKY


def build_parser() -> Parser:
    """The options of `ninfer tunnel`."""
    parser = Parser(
        "tunnel",
        "Offer a machine's server at a fixed local address over SSH. When the machine gets another "
        "address, or the link breaks, it is found again; clients notice nothing but a pause.",
    )
    add_on(parser)
    parser.add_argument("--port", type=int, default=8080, help="local port (default: 8080)")
    parser.add_argument(
        "--remote-port", type=int, default=8080, help="port on the machine (default: 8080)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Forward until interrupted."""
    namespace = parse(build_parser(), argv)
    for flag, port in (("--port", namespace.port), ("--remote-port", namespace.remote_port)):
        if not 0 <= port < 65536:
            raise UsageError(f"{flag} {port}: must be from 0 to 65535")
    with open_fleet() as fleet:
        asyncio.run(_forward(fleet, namespace.on, namespace.port, namespace.remote_port))
    return 0


async def _forward(fleet: Fleet, name: str, port: int, remote: int) -> None:
    from ninfer.fleet.asyncssh_box import open_connection
    from ninfer.fleet.tunnel import Link, Tunnel

    settings, row = fleet.settings, find(fleet, name)
    if row.provider == LOCAL:
        raise UsageError(f"{row.name}: its server is on this machine, at port {remote}")
    if row.provider == SKY:
        raise UsageError(
            f"{row.name}: reached by SkyPilot's ssh; run ssh -N -L {port}:127.0.0.1:{remote} "
            f"{row.label}"
        )
    key = settings.path("NINFER_SSH_KEY")

    async def opening() -> Link:
        # Looked up in this thread, which is the one that the records belong to.
        shot = present(fleet, row)
        if shot.ssh is None:
            raise HostBrokenError(f"{row.name}: {shot.status}, no address", category="")
        return await open_connection(
            row.name, row.host_alias, shot.ssh, key, settings.records, fleet.say
        )

    def ready(local: int) -> None:
        print(f"http://127.0.0.1:{local}/v1", flush=True)

    await Tunnel(opening, port, fleet.say, remote).run(ready)
