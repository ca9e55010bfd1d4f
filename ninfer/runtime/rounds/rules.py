"""What keeps steps from being device-side rounds: every reason has a name."""

from enum import StrEnum

from ninfer.runtime.sequence import Sequence


class PlainReason(StrEnum):
    """Why a step ran op by op, with its draws prepared on the host."""

    NOBODY = "nobody decodes"
    PREFILL = "a prompt or a replay is on its way"
    CONSTRAINT = "a constraint makes its masks on the host"
    FORCER = "a thinking budget may force a token"
    LOGPROBS = "log-probabilities are asked for"
    BIAS = "a request has a logit bias"
    PROPOSER = "drafts come from the host alone"
    UNSEEN = "the drafter has not seen a newest token"
    PAGES = "there are no pages for a round ahead"
    MEMORY = "the device had no memory for a round"


def reason_of(sequence: Sequence) -> PlainReason | None:
    """What of its own keeps a running sequence out of rounds."""
    if not (sequence.is_encoded and sequence.decodes):
        return PlainReason.PREFILL
    if sequence.constraint is not None:
        return PlainReason.CONSTRAINT
    if sequence.forcer is not None:
        return PlainReason.FORCER
    if sequence.top_logprobs is not None:
        return PlainReason.LOGPROBS
    if sequence.sampling.logit_bias:
        return PlainReason.BIAS
    return None
