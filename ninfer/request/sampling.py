"""What a client asks of the answer: how tokens are drawn, what they must form, where it stops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

# A smaller penalty would make infinities of float32 logits; nobody asks for a larger one.
REPETITION_BOUNDS: Final = (0.01, 10.0)


@dataclass(frozen=True, slots=True)
class LogitBias:
    """What is added to the logit of one id, before penalties and cuts."""

    token_id: int
    value: float

    @classmethod
    def parse(cls, text: str) -> "LogitBias":
        """Read ID=X, as the command line has it. Raises ValueError for anything else."""
        token_id, _, value = text.partition("=")
        return cls(int(token_id), float(value))


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn. Temperature 0 is greedy: best logit, lowest id on ties.

    A logit is biased first, also for a greedy draw, which ignores everything else here. Penalties
    follow: they count generated tokens only, and repetition 1 and the others 0 switch them off;
    repetition is within REPETITION_BOUNDS.
    `top_k` 0 and `top_p` 1 and `min_p` 0 switch that cut off. Formulas and the order of the cuts
    stand in the contracts of `ops.penalise` and `ops.candidates`.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[LogitBias, ...] = ()  # of ids that are all different
    seed: int = 0


# Members of SamplingParams that a model has presets for.
SAMPLING_NAMES: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends a generation besides the model's own end-of-turn ids and the limits."""

    token_ids: tuple[int, ...] = ()
    content: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonObjectSpec:
    """The answer is any one JSON object."""


@dataclass(frozen=True, slots=True)
class JsonSchemaSpec:
    """The answer is JSON that `schema` (JSON Schema 2020-12) describes."""

    schema: Mapping[str, Any] | bool


@dataclass(frozen=True, slots=True)
class RegexSpec:
    """The answer as a whole matches `pattern`: Rust regex syntax, no look-around."""

    pattern: str


@dataclass(frozen=True, slots=True)
class ChoiceSpec:
    """The answer is one of `choices`."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """The answer follows a context-free grammar: Lark as llguidance reads it, or GBNF."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolRule:
    """A tool that may be called; `parameters` is the schema of its arguments, None if it has none.

    `strict` arguments always satisfy the schema; others have the declared names and JSON forms.
    """

    name: str
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallSpec:
    """Calls are well-formed calls of `tools`, in the XML form of the Qwen templates.

    `required`: the answer is one call or more and nothing else; otherwise text with any number of
    calls in it or, with `answer`, either calls or that answer. Without `parallel` at most one call.
    """

    tools: tuple[ToolRule, ...]
    required: bool = False
    parallel: bool = True
    answer: JsonObjectSpec | JsonSchemaSpec | None = None


ConstraintSpec = (
    JsonObjectSpec | JsonSchemaSpec | RegexSpec | ChoiceSpec | GrammarSpec | ToolCallSpec
)


class TokenConstraint(Protocol):
    """Which token ids may come next in one sequence, as a state that tokens move.

    Its masks depend on the tokens so far and on nothing else. Not for two threads at once.
    """

    @property
    def is_finished(self) -> bool:
        """Whether a stop id was taken: nothing may follow."""

    @property
    def may_stop(self) -> bool:
        """Whether a stop id may come next."""

    def allowed(self) -> bytes:
        """The ids that may come next: id i is bit i % 32 of little-endian 32-bit word i // 32.

        ceil(V / 32) words for the V addressable ids. Not to be asked once `is_finished`. Raises
        GenerationError if no id may follow, GrammarBackendError if the grammar library gives up.
        """

    def advance(self, token_id: int) -> bool:
        """Take the next token. False, and nothing changes, if it may not come next."""

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens taken."""

    def allowed_ahead(self, drafts: Sequence[int]) -> list[bytes]:
        """Masks for the next position and behind each draft, until a draft that may not stand.

        At most len(drafts) + 1; none behind a stop id. The state stays as it is.
        """

    def fork(self) -> "TokenConstraint":
        """An independent copy."""


class TokenForcer(Protocol):
    """Tokens that must come next in one sequence at certain places, whatever would be drawn.

    A state that the sequence's tokens move; what it forces depends on them and on nothing else.
    """

    @property
    def is_done(self) -> bool:
        """Whether nothing will be forced any more."""

    def forced(self) -> int | None:
        """The id that must come next; None leaves the place free."""

    def advance(self, token_id: int) -> None:
        """Take the next token: the forced one, or any where the place is free."""
