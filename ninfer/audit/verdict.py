"""Verdict: whether a response can be used, and every reason why not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ninfer.audit.contracts import ContractCheck, parse_check
from ninfer.audit.record import StoredResponse
from ninfer.audit.repetition import Repetition, repetition_of
from ninfer.audit.termination import Ending, ending_of, is_empty, is_suspect

_TESTED: Final = ("run", "tests")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a response was worth. `contract` is None where nothing was asked that can be checked."""

    response: StoredResponse
    ending: Ending
    repetition: Repetition
    contract: ContractCheck | None
    reasons: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether there is nothing against it."""
        return not self.reasons

    @property
    def word(self) -> str:
        """`usable`, or the gravest of what is against it in a word or two."""
        if self.usable:
            return "usable"
        if self.repetition.is_loop:
            return "LOOP"
        if is_suspect(self.response, self.ending):
            return str(self.ending)
        if is_empty(self.response):
            return "empty"
        return "contract broken"

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values, without the response's text."""
        response, found = self.response, self.repetition
        return {
            "fixture": response.fixture,
            "category": response.category,
            "case": response.case,
            "mode": response.mode,
            "sampling": response.sampling,
            "seed": response.seed,
            "usable": self.usable,
            "verdict": self.word,
            "reasons": list(self.reasons),
            "ending": str(self.ending),
            "completion_tokens": response.usage.completion,
            "decode_tokens_per_second": response.decode_rate,
            "acceptance": response.drafts.acceptance if response.drafts else None,
            "loops": [str(loop) for loop in found.loops],
            "repetition": found.evidence,
            "contract": None
            if self.contract is None
            else {
                "kept": self.contract.ok,
                "valid": self.contract.valid,
                "wanted": self.contract.wanted,
                "notes": list(self.contract.notes),
            },
            "command": response.command,
        }


def judge(response: StoredResponse, *, run_code: bool = True) -> Verdict:
    """Judge one response; without `run_code` code is compiled only, and not found to work.

    Raises UsageError for a contract that is none.
    """
    ending, found = ending_of(response), repetition_of(response)
    contract = None
    if response.contract is not None and ending is not Ending.ERROR:
        contract = _checked(response, run_code=run_code)
    return Verdict(
        response, ending, found, contract, tuple(_against(response, ending, found, contract))
    )


def judge_all(responses: Iterable[StoredResponse], *, run_code: bool = True) -> list[Verdict]:
    """Judge responses in order."""
    return [judge(response, run_code=run_code) for response in responses]


def _checked(response: StoredResponse, *, run_code: bool) -> ContractCheck:
    contract = response.contract
    assert contract is not None
    where = f"contract of {response.fixture}"
    if run_code or not _runs(contract):
        return parse_check(contract, where)(response.text)
    found = parse_check(_without_tests(contract), where)(response.text)
    reasons = (*found.reasons, "its tests were not run (--no-run-code)")
    return ContractCheck(reasons, found.rows, found.valid, found.wanted, found.notes)


def _runs(contract: Any) -> bool:
    if not isinstance(contract, Mapping):
        return False
    parts = contract.get("of")
    inner = parts if contract.get("kind") == "all" and isinstance(parts, list) else ()
    return bool(contract.get("run")) or any(map(_runs, inner))


def _without_tests(contract: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in contract.items() if name not in _TESTED}
    if isinstance(kept.get("of"), list):
        kept["of"] = [_without_tests(p) if isinstance(p, Mapping) else p for p in kept["of"]]
    return kept


def _against(
    response: StoredResponse, ending: Ending, found: Repetition, contract: ContractCheck | None
) -> Iterable[str]:
    if ending is Ending.ERROR:
        yield f"error: {response.error or response.finish_reason}"
        return
    if is_suspect(response, ending):
        yield f"ended by {ending}"
    if is_empty(response):
        yield "no answer: all of it was thinking" if response.reasoning.strip() else "no answer"
    yield from map(str, found.loops)
    if found.says_again and not found.loops:
        yield f"says again what it said: {found.said:.0%} of {found.tokens} tokens"
    if contract is not None:
        yield from contract.reasons
