"""Counts what compiles in this process: Triton kernels, CUDA sources, launchers written in C.

A launcher is the small C module that Triton builds for each signature of a kernel and for its
driver. It is made by the machine's C compiler where the kernel runs, so a kit cannot hold it.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import triton

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import INTERPRETED
from ninfer.ops.linear import compiler

_C_COMPILER: Final = re.compile(r"(.*-)?(cc|gcc|clang|c\+\+|g\+\+|clang\+\+)(-[\d.]+)?")
_ASSEMBLER: Final = re.compile(r"ptxas(-\w+)?")


@dataclass(slots=True)
class CompilerRuns:
    """Compilations since counting began, and kernels that Triton found compiled."""

    triton: int = 0
    triton_found: int = 0
    cuda: int = 0
    assembler: int = 0  # ptxas, which Triton starts as a program
    c_launchers: int = 0

    @property
    def kernels(self) -> int:
        """Compilations of kernels, by whichever compiler."""
        return self.triton + self.cuda + self.assembler


# What is counted now. A hook of the interpreter cannot be taken away again, only told to rest.
_counted: list[CompilerRuns] = []
_hooked = False


@contextmanager
def counting() -> Iterator[CompilerRuns]:
    """Count inside the `with`; one at a time.

    Raises UnsupportedError in a process that interprets kernels, where nothing is ever compiled.
    """
    if INTERPRETED:
        raise UnsupportedError(
            "TRITON_INTERPRET is set: this process interprets kernels, so counting compilations "
            "proves nothing; unset it"
        )
    assert not _counted, "counting inside counting"
    runs = CompilerRuns()
    knobs = triton.knobs.compilation
    listener, compile_program = knobs.listener, compiler.compile_program

    def listen(*, cache_hit: bool, **_: Any) -> None:
        if cache_hit:
            runs.triton_found += 1
        else:
            runs.triton += 1

    def compile_and_count(program: compiler.Program) -> bytes:
        runs.cuda += 1
        return compile_program(program)

    _hook()
    _counted.append(runs)
    knobs.listener, compiler.compile_program = listen, compile_and_count
    try:
        yield runs
    finally:
        knobs.listener, compiler.compile_program = listener, compile_program
        _counted.clear()


def _hook() -> None:
    global _hooked
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked = True


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Programs that Python starts: compilers among them are counted by their names."""
    if event != "subprocess.Popen" or not _counted:
        return
    program, words = arguments[:2]
    # Triton asks for the assembler's version to make its keys.
    if "--version" in map(str, words):
        return
    name = PurePath(str(program)).name
    if _ASSEMBLER.fullmatch(name):
        _counted[0].assembler += 1
    elif _C_COMPILER.fullmatch(name):
        _counted[0].c_launchers += 1
