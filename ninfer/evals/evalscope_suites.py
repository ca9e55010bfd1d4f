"""Suites that EvalScope asks of a server: what it is told for each of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ninfer.errors import UsageError

# One answer to each item, without examples, thinking on, with the model family's own sampling for
# thinking; EvalScope's prompts and graders. The seed is that of the first item; a server gives
# each further item one of its own.
FEW_SHOT: Final = 0
SEED: Final = 20260811
SAMPLING: Final[Mapping[str, Any]] = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "seed": SEED}
# Answers of long reasoning; what the original's evaluation could write at most is not published.
_MAX_TOKENS: Final = 65_536


@dataclass(frozen=True, slots=True)
class EvalScopeSuite:
    """One data set of EvalScope; `items` is None where --data brings the items."""

    name: str
    dataset: str
    items: int | None
    max_tokens: int = _MAX_TOKENS

    @property
    def wants_data(self) -> bool:
        """Whether the items are in a folder of the user's."""
        return self.items is None


EVALSCOPE_SUITES: Final = {
    suite.name: suite
    for suite in (
        EvalScopeSuite("aime25", "aime25", 30),
        EvalScopeSuite("aime26", "aime26", 30),
        EvalScopeSuite("gpqa-diamond", "gpqa_diamond", 198),
        EvalScopeSuite("general-qa", "general_qa", None, 8192),
        EvalScopeSuite("general-mcq", "general_mcq", None, 8192),
    )
}


@dataclass(frozen=True, slots=True)
class EvalScopeRun:
    """One run: whom it asks, how much of the suite, and the folder of its results."""

    suite: EvalScopeSuite
    root: str  # the server's address without /v1
    model: str
    results: Path
    concurrency: int
    thinking: bool = True
    limit: int | None = None
    max_tokens: int | None = None
    data: Path | None = None

    def task(self) -> dict[str, Any]:
        """The members of EvalScope's TaskConfig; the key is not among them.

        Raises UsageError for a data folder that is missing, or given where none is asked for.
        """
        arguments: dict[str, Any] = {"few_shot_num": FEW_SHOT}
        if self.suite.wants_data:
            arguments |= _local(self.suite, self.data)
        elif self.data is not None:
            raise UsageError(f"--data {self.data}: suite {self.suite.name} brings its own items")
        extra = {"chat_template_kwargs": {"enable_thinking": self.thinking}}
        generation = {
            **SAMPLING,
            "max_tokens": self.max_tokens or self.suite.max_tokens,
            "n": 1,
            "stream": True,
            "extra_body": extra,
        }
        return {
            "model": self.model,
            "api_url": f"{self.root}/v1",
            "eval_type": "openai_api",
            "datasets": [self.suite.dataset],
            "dataset_args": {self.suite.dataset: arguments},
            "eval_batch_size": self.concurrency,
            "generation_config": generation,
            "limit": self.limit,
            "repeats": 1,
            "seed": SEED,
            "work_dir": str(self.results),
            "no_timestamp": True,
        }


def _local(suite: EvalScopeSuite, folder: Path | None) -> dict[str, Any]:
    """Where the items are: EvalScope takes a folder, and of it one file for each subset."""
    if folder is None:
        raise UsageError(f"--data FOLDER is missing; suite {suite.name} asks the items in it")
    names = sorted(path.stem for path in folder.glob("*.jsonl"))
    if not names:
        raise UsageError(f"--data {folder}: holds no NAME.jsonl with items")
    return {"local_path": str(folder.resolve()), "subset_list": names}
