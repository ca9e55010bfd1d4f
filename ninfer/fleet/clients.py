"""Client programs that are configured for the tunnel's fixed address, once and again later."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ninfer.connect import Client, ServedModel, amend_file, check_provider, find_client
from ninfer.fleet.config import Settings
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.provisioning import Record


def write_clients(
    fleet: Fleet, names: tuple[str, ...], record: Record, root: str, environ: Mapping[str, str]
) -> list[Path]:
    """Put the served model into the files of those clients, and of those of earlier calls.

    A backup is made, comments stay, no key is written. Returns the files that changed. Raises
    UsageError for an unknown client and ClientConfigError for a file that cannot be read.
    """
    provider = _provider(fleet.settings)
    shared = ServedModel(root, record.models[0], record.context, needs_key=True, provider=provider)
    files = {row["name"]: Path(row["file"]) for row in fleet.store.query("SELECT * FROM clients")}
    files |= {name: find_client(name).location(environ, Path.home()) for name in names}
    changed = []
    for name, path in files.items():
        client = find_client(name)
        served = replace(shared, key_env=shared.provider_key_env) if name == "zed" else shared

        def amend(
            text: str, client: Client = client, path: Path = path, served: ServedModel = served
        ) -> str:
            return client.amend(text, served, str(path), default=client.name in names)

        wrote, backup = amend_file(path, amend)
        fleet.store.execute("INSERT OR REPLACE INTO clients VALUES (?, ?)", (name, str(path)))
        if not wrote:
            continue
        changed.append(path)
        fleet.say(f"{path}: written" + (f"; as it was: {backup}" if backup else ""))
        for note in client.notes(served, default=name in names):
            fleet.say(note)
    return changed


def check_clients(settings: Settings, names: tuple[str, ...]) -> None:
    """Raises UsageError for a client that nobody knows, before anything is rented."""
    _provider(settings)
    for name in names:
        find_client(name)


def _provider(settings: Settings) -> str:
    name = settings.text("NINFER_PROVIDER")
    check_provider("NINFER_PROVIDER", name)
    return name
