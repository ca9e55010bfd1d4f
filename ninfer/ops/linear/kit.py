"""The launch list of all CUDA kernels: what a kit for an architecture has to hold, compiled."""

from pathlib import Path
from typing import Final

from ninfer.formats import numeric_format
from ninfer.ops.attention.kit import programs as attention_programs
from ninfer.ops.delta_net.kit import programs as delta_programs
from ninfer.ops.linear import fast
from ninfer.ops.linear.compiler import Program, binary
from ninfer.ops.linear.fast_plan import FEW, WIDE, split_of, stream_plan
from ninfer.ops.linear.fragment_order import FORMATS
from ninfer.ops.linear.wide_plan import many_plan
from ninfer.ops.moe.kit import programs as expert_programs
from ninfer.ops.sampling.kit import programs as draw_programs

# Columns of the matrices in fragment order of all registered models, drafters included.
WIDTHS: Final = (512, 2048, 4096, 5120, 6144, 10240, 17408)


def programs(architecture: int) -> list[Program]:
    """All programs that the registered models' weights can ask for, each once."""
    found = {Program.of("read.cu", architecture, {}): None}
    for form in FORMATS:
        bits = numeric_format(form).bits
        for columns in WIDTHS:
            groups = split_of(architecture, bits, columns).slice_groups
            plans: list[fast.Plan] = [
                stream_plan(architecture, bits, columns, tokens) for tokens in (8, FEW)
            ]
            plans += [many_plan(architecture, bits, groups, tokens) for tokens in (32, WIDE)]
            for plan in plans:
                found |= dict.fromkeys(fast.programs(architecture, plan))
    found |= dict.fromkeys(expert_programs(architecture))
    found |= dict.fromkeys(draw_programs(architecture))
    # In no tier yet: those who measure them ask for them by name.
    found |= dict.fromkeys(attention_programs(architecture))
    found |= dict.fromkeys(delta_programs(architecture))
    return list(found)


def compile_kit(architecture: int, folder: Path, every: int = 1) -> int:
    """Compile into the folder what it lacks, or each N-th of the list; gives how many that were.

    Raises UnsupportedError, naming source and architecture, for one that does not compile.
    """
    missing = [p for p in programs(architecture)[::every] if not (folder / p.name).exists()]
    for program in missing:
        binary(program, folder)
    return len(missing)
