"""Every exception that ninfer raises for something outside itself.

    NInferError
    |-- UsageError            an option or argument value that cannot be honoured
    |   `-- UnsupportedError  a known option or value whose machinery this version does not have
    |-- ArtifactError         a file that is not a usable .ninfer artifact
    |   |-- FramingError      magic, sizes or directory text are wrong
    |   |-- DirectoryError    an object entry breaks the schema or the geometry rules
    |   |-- InventoryError    objects are missing, unexpected or of another shape or format
    |   `-- PayloadError      stored words that no writer may produce (NaN scale, illegal code)
    |-- FormatError           values that a numeric format cannot represent
    |-- ConfigError           a model configuration that is incomplete or contradicts itself
    |-- FetchError            a download that failed, or that is not the file it should be
    |-- KitError              a kit of compiled kernels that cannot be built, read or installed
    |-- CheckpointError       a source checkpoint that cannot be converted
    |-- RequestError          a request that cannot be served as asked
    |   |-- PromptError       messages, tools or template input that cannot be rendered
    |   |-- ContextError      the prompt does not fit the context
    |   |-- ConstraintError   a schema, regex, choice or grammar that cannot be enforced
    |   |-- CapacityError     all pages or state slots are taken now; the same request may fit later
    |   `-- QueueTimeoutError no place became free within the time that a request may wait
    |-- GenerationError       the model produced something that ends this request (NaN logits)
    |-- RequestFailedError    a part of one request failed for no known reason; others go on
    |-- ServerError           a server that cannot be reached, or that refused a request
    |-- ClientConfigError     a client's configuration file that cannot be read, edited or written
    |-- FleetError            a rented or owned machine, its vendor, or what we may spend
    |   |-- NoInstanceError     no machine of that name or number is known
    |   |-- NoOfferError        nothing for rent passes every criterion
    |   |-- RefusedError        the vendor said no: key, credit, limits, terms
    |   |   `-- OfferGoneError  the offer was taken by another
    |   |-- HostBrokenError     the machine cannot run the container, or nobody can reach it
    |   |-- TimeLimitError      a state was not reached within its time
    |   |-- VerificationError   what is there is not what was meant to be: key, hash, dead-man
    |   |-- BudgetError         a price or a total is above its cap
    |   |-- ProviderError       the vendor cannot be reached, limits us, or answers unintelligibly
    |   |-- ExistsError         the name is taken, or another process works on the machine
    |   `-- OutcomeUnknownError what was asked of the vendor may or may not have happened
    |-- UnavailableError      the engine serves nobody now: it is closed, stalled or has failed
    `-- GrammarBackendError   the grammar library failed; the request was not at fault

Each message is one line that names the object and the value, and says what to do when that is
known. Internal invariants use `assert`, never these.
"""


class NInferError(Exception):
    """Base of all errors that a user can cause or meet; the command line prints its text only."""


class UsageError(NInferError):
    """An option or argument has a value that cannot be honoured."""


class UnsupportedError(UsageError):
    """A declared option or value needs machinery that this version does not have."""


class ArtifactError(NInferError):
    """The file is not a usable .ninfer artifact."""


class FramingError(ArtifactError):
    """Magic, header sizes or the directory text are wrong."""


class DirectoryError(ArtifactError):
    """An entry of the object directory breaks the schema or the geometry rules."""


class InventoryError(ArtifactError):
    """Objects that the model needs are missing, unexpected, or of another shape or format."""


class PayloadError(ArtifactError):
    """Stored words are outside what the numeric format allows."""


class FormatError(NInferError):
    """Values cannot be represented in the numeric format (non-finite input, scale overflow)."""


class ConfigError(NInferError):
    """A model configuration is incomplete or contradicts itself."""


class CheckpointError(NInferError):
    """A source checkpoint cannot be converted: a file or tensor is missing, damaged or unfit."""


class KitError(NInferError):
    """A kit of compiled kernels cannot be built, read or installed, or is for another machine."""


class FetchError(NInferError):
    """A download failed, or what the server has is not the published file."""


class RequestError(NInferError):
    """A request cannot be served as asked; other requests are not affected."""


class PromptError(RequestError):
    """Messages, tools or template input cannot be rendered into a prompt."""


class ContextError(RequestError):
    """The prompt does not fit the configured context."""

    def __init__(self, message: str, *, prompt_tokens: int, limit: int) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class ConstraintError(RequestError):
    """An output constraint is malformed, is not supported, or cannot be satisfied.

    `code` tells which: invalid_json_schema, unsupported_json_schema, unsatisfiable_json_schema,
    invalid_regex, invalid_choice or invalid_grammar.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class CapacityError(RequestError):
    """All pages or state slots are taken now; the same request may fit later."""


class QueueTimeoutError(RequestError):
    """No place became free within the time that a request may wait; it may fit later."""


class ServerError(NInferError):
    """A server cannot be reached, or it refused or broke off a request; `status` is its HTTP code.

    `status` is None when no answer came.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ClientConfigError(NInferError):
    """A configuration file of a client cannot be read, understood or written."""


class FleetError(NInferError):
    """A machine, its vendor or a budget stands in the way; `exit_status` is the command's."""

    exit_status = 1


class NoInstanceError(FleetError):
    """No machine of that name or number is known."""

    exit_status = 3


class NoOfferError(FleetError):
    """Nothing for rent passes every criterion."""

    exit_status = 4


class RefusedError(FleetError):
    """The vendor said no: a bad key, no credit, a limit of the account, bad terms."""

    exit_status = 5


class OfferGoneError(RefusedError):
    """The offer was taken by another; a different one may do."""


class HostBrokenError(FleetError):
    """The machine cannot run the container or cannot be reached; `category` says in what way."""

    exit_status = 6

    def __init__(self, message: str, *, category: str) -> None:
        super().__init__(message)
        self.category = category


class TimeLimitError(FleetError):
    """A state was not reached within its time."""

    exit_status = 7


class VerificationError(FleetError):
    """What is there is not what was meant to be there: a host key, a hash, the dead-man."""

    exit_status = 8


class BudgetError(FleetError):
    """A price, a total or a lifetime is above its cap."""

    exit_status = 9


class ProviderError(FleetError):
    """The vendor cannot be reached, limits us, or answers in a shape that nobody knows."""

    exit_status = 10


class ExistsError(FleetError):
    """The name is taken, or another process works on the machine at the moment."""

    exit_status = 11


class OutcomeUnknownError(FleetError):
    """What was asked of the vendor may or may not have happened; a machine may bill."""

    exit_status = 12


class GenerationError(NInferError):
    """The model's output ends this request, for example non-finite logits."""


class RequestFailedError(NInferError):
    """A constraint, draw or encoding of one request failed unexpectedly; others go on."""


class UnavailableError(NInferError):
    """The engine serves nobody now: it is closing, its step has stalled, or it has failed."""


class GrammarBackendError(NInferError):
    """The grammar library failed on a sound constraint; the request is not at fault."""
