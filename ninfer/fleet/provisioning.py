"""`provision`: from a machine that can be reached to one that has answered with a token.

Every stage leaves evidence on the machine; a rerun goes on where the last one was, whatever ended
it. What came out of it is kept in the records.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ninfer.errors import FleetError
from ninfer.fleet.box import Box
from ninfer.fleet.build_stage import build_there
from ninfer.fleet.checking import judge, look
from ninfer.fleet.contract import Contract
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.place import folder_of, is_own
from ninfer.fleet.plans import Plan
from ninfer.fleet.power import present
from ninfer.fleet.provider import Snapshot
from ninfer.fleet.scripts import HEADER, stages_of
from ninfer.fleet.serving import (
    install_server,
    memory_of,
    model_of,
    one_token,
    start_server,
    stop_server,
    wait_healthy,
)
from ninfer.fleet.stages import Link, Stage, complete
from ninfer.fleet.uploads import put_file

_MODEL_FILE: Final = "models/{}.ninfer"


@dataclass(slots=True)
class Record:
    """What a provision found and took. Memory in MiB, times in seconds, by stage in order.

    `done` names the stages that had something to do; the others' evidence was there.
    """

    machine: str
    card: str
    kit: str
    model: str
    models: list[str] = field(default_factory=list)
    context: int | None = None
    resident_mib: int = 0
    card_mib: int = 0
    round_trip: float = 0.0
    output_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())


class _Stages:
    """Takes the time of each stage and tells of it."""

    def __init__(self, fleet: Fleet, contract: Contract, record: Record) -> None:
        self._fleet = fleet
        self._contract = contract
        self._record = record

    @contextmanager
    def timed(self, name: str) -> Iterator[Callable[[], None]]:
        """Around one stage; what it gives is called when the stage had something to do."""
        began = self._fleet.clock.now()
        done = self._record.done
        yield lambda: done.append(name)
        seconds = self._fleet.clock.now() - began
        self._record.seconds[name] = round(seconds, 2)
        how = f"{seconds:.1f} s" if name in done else "there already"
        self._fleet.say(f"{self._contract.name}: {name}: {how}")
        self._fleet.store.change(self._contract, f"provision: {name}: {how}")


def link_to(fleet: Fleet, contract: Contract, **how: int) -> Link:
    """The machine's folder, over connections to wherever it is at the time."""

    def opening() -> Box:
        return fleet.connect(contract, present(fleet, contract))

    return Link(opening, folder_of(contract), fleet.clock, fleet.say, **how)


def installer(plan: Plan) -> Callable[[Fleet, Contract, Snapshot], None]:
    """What `create` calls on a machine that is reached and armed."""

    def install(fleet: Fleet, contract: Contract, shot: Snapshot) -> None:
        provision(fleet, contract, plan)

    return install


def provision(fleet: Fleet, contract: Contract, plan: Plan, *, restart: bool = False) -> Record:
    """Make the machine serve, and see it compute a token; with `restart` a running server ends.

    The caller holds the machine's lock. Raises HostBrokenError, VerificationError and
    TimeLimitError; a rerun goes on from the stage that failed.
    """
    link = link_to(fleet, contract)
    record = Record(contract.machine_id, "", plan.kit.id, plan.model.name)
    stages = _Stages(fleet, contract, record)
    try:
        with stages.timed("check"):
            facts = look(link)
            judge(plan, facts)
            record.card = facts.card
        system, *_ = stages_of(plan)
        with stages.timed(system.name) as worked:
            if complete(link, system):
                worked()
        if plan.kit.build is not None:
            with stages.timed("build") as worked:
                plan, built = build_there(link, contract.name, plan, *plan.kit.build)
                record.kit = plan.kit.id
                if built:
                    worked()
        for stage in stages_of(plan)[1:]:
            with stages.timed(stage.name) as worked:
                sent = _send_kit(link, plan, stage) if stage.name == "kit" else 0
                if complete(link, stage) or sent:
                    worked()
        if plan.artifact is not None:
            with stages.timed("artifact") as worked:
                if _send_artifact(link, plan, plan.artifact):
                    worked()
        _serve(link, plan, record, stages, restart=restart)
    finally:
        link.close()
    keep(fleet, contract, record)
    return record


def _send_kit(link: Link, plan: Plan, stage: Stage) -> int:
    """Upload a kit of this machine, unless what is in it lies there already; or a token."""
    if link.run(stage.holds).status == 0:
        return 0
    if plan.kit.token:
        link.need(f"cat > {HEADER}", stdin=f"Authorization: {plan.kit.token}\n")
    if plan.kit.file is None:
        return 0
    return put_file(link, plan.kit.file, f"kit.{plan.kit.id}.tar.gz", plan.kit.sha256)


def _send_artifact(link: Link, plan: Plan, artifact: Path) -> int:
    link.need("mkdir -p models")
    return put_file(link, artifact, _MODEL_FILE.format(plan.artifact_sha256), plan.artifact_sha256)


def _serve(link: Link, plan: Plan, record: Record, stages: _Stages, *, restart: bool) -> None:
    with stages.timed("serve") as worked:
        changed = install_server(link, plan)
        if changed or restart:
            # What runs was started from the words of before.
            stop_server(link)
            worked()
        start_server(link)
    with stages.timed("health") as worked:
        answer = wait_healthy(link, plan.key)
        worked()
        card = model_of(answer)
        assert card is not None
        record.models = [item["id"] for item in answer.body["data"]]
        context = card.get("max_model_len") or card.get("context_length")
        record.context = context if isinstance(context, int) else None
    with stages.timed("token") as worked:
        answer, record.output_tokens = one_token(link, plan.key, record.models[0])
        record.round_trip = round(answer.seconds, 3)
        record.resident_mib, record.card_mib = memory_of(link)
        worked()


def resume(fleet: Fleet, contract: Contract, key: str) -> bool:
    """Start the server of a machine that came up again and wait for it; False where there is none.

    Raises like `provision`.
    """
    link = link_to(fleet, contract)
    try:
        if link.run("[ -e start ]").status:
            return False
        start_server(link)
        wait_healthy(link, key)
    finally:
        link.close()
    return True


def quiesce(fleet: Fleet, contract: Contract) -> None:
    """Let a machine's server finish its requests before the machine is stopped.

    Whatever goes wrong is said and no more: it must not stand between a user and a stop.
    """
    if is_own(contract) or not records(fleet, contract):
        return  # own machines run the script themselves
    link = link_to(fleet, contract, tries=1)
    try:
        stop_server(link)
    except FleetError as error:
        fleet.say(f"{contract.name}: its server was not stopped first: {error}")
    finally:
        link.close()


def keep(fleet: Fleet, contract: Contract, record: Record) -> None:
    """Write a record into the fleet's."""
    text = json.dumps(asdict(record))
    fleet.store.execute(
        "INSERT INTO provisions VALUES (?, ?, ?)", (contract.key, fleet.clock.now(), text)
    )


def records(fleet: Fleet, contract: Contract) -> list[dict[str, Any]]:
    """What was found on a machine, oldest first."""
    rows = fleet.store.query(
        "SELECT record FROM provisions WHERE contract = ? ORDER BY rowid", (contract.key,)
    )
    return [json.loads(row["record"]) for row in rows]
