"""The stage that makes a kit on the machine, for a plan that has none to bring."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from ninfer.errors import ExistsError
from ninfer.fleet.building import BuiltKit, built_kit, start_build, wait_build
from ninfer.fleet.plans import Plan, Source
from ninfer.fleet.source import source_of
from ninfer.fleet.stages import Link

# A kit of one architecture on a few cores, packages included.
_SECONDS: Final = 3600.0
# What the kit that lies there was built from.
_EVIDENCE: Final = "build.made"


def build_there(link: Link, name: str, plan: Plan, url: str, ref: str) -> tuple[Plan, bool]:
    """The plan with the kit that the machine built, and whether it had to be built now.

    A build that runs there already is followed. Raises as `start_build` and `wait_build` do.
    """
    source = source_of(url, ref, Path(__file__).parent)
    made = f"{plan.architecture} {url} {source.revision or ref}"
    if link.run(f"cat {_EVIDENCE}").out.strip() == made:
        return _with(link, plan, built_kit(link, name)), False
    link.need(f"rm -f {_EVIDENCE}")
    try:
        start_build(link, name, plan.architecture, source)
    except ExistsError:
        link.say(f"{name}: a build runs there already; following it")
    kit = wait_build(link, name, link.clock, _SECONDS)
    link.need(f"cat > {_EVIDENCE}", stdin=f"{made}\n")
    return _with(link, plan, kit), True


def _with(link: Link, plan: Plan, kit: BuiltKit) -> Plan:
    home = link.need('echo "$HOME"').strip()
    return replace(plan, kit=Source(None, f"file://{home}/{kit.path}", kit.sha256))
