"""Code: the files that were asked for are there, compile, and pass their tests in a sandbox."""

import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from ninfer.audit.contracts.brackets import unbalanced
from ninfer.audit.contracts.fences import Fence, fences_of
from ninfer.audit.contracts.parameters import Parameters
from ninfer.audit.contracts.prose import Check, shown
from ninfer.audit.contracts.records import ContractCheck, shortened
from ninfer.audit.sandbox import Limits, run_tool, run_unittest
from ninfer.errors import UsageError

_LANGUAGES: Final = ("python", "typescript", "cuda")
_NAME: Final = re.compile(r"[\w./-]+\.[a-z]{1,4}\b")
_COMMENT: Final = re.compile(r"\s*(?:#|//|/\*|--|<!--)\s*(?:file(?:name)?\s*[:=]\s*)?(\S.*)", re.I)
_TYPESCRIPT_SYNTAX: Final = re.compile(r"error TS1[0-9]{3}: .*")
# Of the tests of an answer.
LIMITS: Final = Limits()
# A compiler maps far more memory than it uses.
_TOOL: Final = Limits(seconds=60, cpu_seconds=60, memory=16 << 30, file_bytes=64 << 20)

Found = tuple[list[str], list[str]]  # reasons and notes


def code(parameters: Parameters) -> Check:
    """The text has all of `files`, whole; those of `language` can be read by it.

    Python files compile; the tests in `run`, files of the answer or of `tests` (name to text),
    pass.
    TypeScript and CUDA are parsed by tsc, esbuild or nvcc where there is one, and for
    balanced brackets everywhere. `contains` are texts that some file has.
    """
    wanted = parameters.texts("files")
    language = parameters.text("language")
    tests = parameters.value("tests", dict, {})
    names = parameters.texts("run", ())
    contains = parameters.texts("contains", ())
    if language not in _LANGUAGES:
        raise UsageError(f"{parameters.where}.language: {language!r} must be one of {_LANGUAGES}")
    for name in names:
        if name not in wanted and name not in tests:
            raise UsageError(f"{parameters.where}.run: {name!r} is in neither files nor tests")

    def check(text: str) -> ContractCheck:
        found = files_of(text, wanted)
        reasons = [f"file {name} is missing" for name in wanted if name not in found]
        reasons += [f"file {name} is cut off" for name, fence in found.items() if not fence.closed]
        bodies = {name: fence.body + "\n" for name, fence in found.items()}
        whole = "\n".join(bodies.values())
        reasons += [f"{shown(word)} is missing" for word in contains if word not in whole]
        notes: list[str] = []
        if not reasons:
            if language == "python":
                reasons, notes = _python(bodies, tests, names)
            else:
                reasons, notes = _compiled(language, bodies)
        return ContractCheck(
            shortened(reasons), valid=len(found), wanted=len(wanted), notes=tuple(notes)
        )

    return check


def files_of(text: str, wanted: Sequence[str]) -> dict[str, Fence]:
    """The blocks that are these files, by name; of two for one file the later counts.

    A block says its name behind the opening marks, in the line before it, or in a comment that is
    its first line. Where one file is wanted and there is one block, it is that.
    """
    fences = fences_of(text)
    found: dict[str, Fence] = {}
    for fence in fences:
        name = _name_of(fence, wanted)
        if name is not None:
            found[name] = fence
    if not found and len(wanted) == 1 and len(fences) == 1:
        found[wanted[0]] = fences[0]
    return found


def _name_of(fence: Fence, wanted: Sequence[str]) -> str | None:
    first = _COMMENT.match(fence.body.split("\n", 1)[0])
    for place in (fence.info, first[1] if first else "", fence.before):
        for name in _NAME.findall(place):
            matches = [one for one in wanted if name == one or name.endswith("/" + one)]
            if matches:
                return matches[0]
    return None


def _python(bodies: Mapping[str, str], tests: Mapping[str, str], names: Sequence[str]) -> Found:
    ran = run_unittest({**bodies, **tests}, names, LIMITS)
    done = "compiled and tested" if names else "compiled"
    return ([] if ran.ok else [f"python: {ran.reason}"]), [f"{done} by Python in a sandbox"]


def _compiled(language: str, bodies: Mapping[str, str]) -> Found:
    reasons = []
    for name, body in bodies.items():
        problem = unbalanced(body, templates=language == "typescript")
        if problem:
            reasons.append(f"{name}: {problem}")
    if reasons:
        return reasons, []
    return _typescript(bodies) if language == "typescript" else _cuda(bodies)


def _typescript(bodies: Mapping[str, str]) -> Found:
    sources = [name for name in bodies if name.endswith((".ts", ".tsx"))]
    if shutil.which("tsc"):
        options = ["--noEmit", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"]
        ran = run_tool(bodies, ["tsc", *options, *sources], _TOOL)
        # Types need declarations that an answer does not bring; its syntax has numbers of its own.
        broken = _TYPESCRIPT_SYNTAX.findall(ran.output)
        return [f"tsc: {line[:200]}" for line in broken], ["parsed by tsc"]
    if shutil.which("esbuild"):
        options = ["--outdir=built", "--log-level=error"]
        ran = run_tool(bodies, ["esbuild", *options, *sources], _TOOL)
        return ([] if ran.ok else [f"esbuild: {ran.reason}"]), ["parsed by esbuild"]
    return [], ["no tsc or esbuild here: brackets only"]


def _cuda(bodies: Mapping[str, str]) -> Found:
    sources = [name for name in bodies if name.endswith((".cu", ".cpp"))]
    if shutil.which("nvcc"):
        command = ["nvcc", "-std=c++17", "-cubin", "-arch=sm_80", "-odir", "."]
        ran = run_tool(bodies, [*command, *sources], _TOOL)
        return ([] if ran.ok else [f"nvcc: {ran.reason}"]), ["compiled by nvcc"]
    return [], ["no nvcc here: brackets only"]
