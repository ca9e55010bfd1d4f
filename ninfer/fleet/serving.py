"""A server on a machine: how it is called, started and stopped, and whether it really answers."""

import json
from dataclasses import dataclass
from typing import Any, Final

from ninfer.errors import HostBrokenError, TimeLimitError, VerificationError
from ninfer.fleet.plans import Plan
from ninfer.fleet.serving_scripts import MEMORY, START, STOP, SUPERVISE
from ninfer.fleet.stages import POLL, Link
from ninfer.json_text import parse_json

KEY_FILE: Final = "key"
PORT_FILE: Final = "port"
# Weights of a large artifact are read from a slow disk; the log tells of progress meanwhile.
_QUIET: Final = 420.0
_ANSWER_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 70.0
_STATUS_MARK: Final = "\n%{http_code} %{time_total}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered on its own machine. `seconds` is the round trip there."""

    status: int
    body: Any
    seconds: float


def server_words(plan: Plan) -> list[str]:
    """The server's command line in the machine's folder; the key is in a file."""
    artifact = plan.model.name if plan.model.packaged else f"models/{plan.artifact_sha256}.ninfer"
    return [
        *("env", f"NINFER_PYTHON={plan.python or 'venv/bin/python'}", "kit/bin/ninfer", "serve"),
        artifact,
        *("--host", "127.0.0.1", "--port", str(plan.port), "--api-key-file", KEY_FILE),
        *("--activity-file", "active", *plan.options),
    ]


def install_server(link: Link, plan: Plan) -> bool:
    """Write key, command line and scripts; True if any of them changed.

    Raises VerificationError when others on the machine could read the key.
    """
    words = server_words(plan)
    if not plan.model.packaged and plan.artifact is None:
        path = link.need(f"cat artifact.{plan.model.name}").strip()
        words = [path if word.startswith("models/") else word for word in words]
    files = {
        KEY_FILE: f"{plan.key}\n",
        PORT_FILE: f"{plan.port}\n",
        "serve.argv": "".join(f"{word}\n" for word in words),
        "supervise": SUPERVISE,
        "start": START,
        "stop": STOP,
    }
    changed = False
    for name, text in files.items():
        # Secrets and all else come by standard input; an equal file stays as it is.
        out = link.need(
            f"cat > {name}.new && chmod 600 {name}.new && "
            f"if cmp -s {name}.new {name}; then rm {name}.new; "
            f"else mv {name}.new {name} && echo changed; fi",
            stdin=text,
        )
        changed = changed or "changed" in out
    mode = link.need(f"stat -c %a {KEY_FILE}").strip()
    if mode != "600":
        raise VerificationError(f"{KEY_FILE} on the machine has mode {mode} where 600 was asked")
    return changed


def start_server(link: Link) -> None:
    """Start the supervisor, unless it runs."""
    link.need("sh ./start", timeout=_STOP_SECONDS + 10)


def stop_server(link: Link) -> None:
    """Run the machine's `stop` script: requests under way end first."""
    link.need("[ ! -e stop ] || sh ./stop", timeout=_STOP_SECONDS)


def ask(link: Link, key: str, path: str, body: dict[str, Any] | None = None) -> Answer:
    """One request on the machine's loopback; the key goes to curl by its standard input.

    Status 0 when nobody answers.
    """
    lines = [f'header = "Authorization: Bearer {_quoted(key)}"']
    if body is not None:
        lines.append('header = "Content-Type: application/json"')
        lines.append(f'data = "{_quoted(json.dumps(body))}"')
    out = link.run(
        f"curl -sS -m {_ANSWER_SECONDS:.0f} --noproxy '*' -K - "
        f"-w '{_STATUS_MARK}' http://127.0.0.1:$(cat {PORT_FILE}){path}",
        stdin="\n".join(lines) + "\n",
        timeout=_ANSWER_SECONDS + 10,
    ).out
    text, _, mark = out.rpartition("\n")
    words = mark.split()
    if len(words) != 2 or not words[0].isdigit():
        return Answer(0, None, 0.0)
    return Answer(int(words[0]), _parsed(text), float(words[1]))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _parsed(text: str) -> Any:
    try:
        return parse_json(text, "the server's answer", VerificationError)
    except VerificationError:
        return None  # whoever asked sees that it is no answer


def wait_healthy(link: Link, key: str) -> Answer:
    """Wait until the server lists its model.

    Raises VerificationError with the end of its log when it does not start, TimeLimitError when it
    neither answers nor logs anything for minutes.
    """
    seen, news = "", link.clock.now()
    while True:
        answer = ask(link, key, "/v1/models")
        if answer.status == 200 and model_of(answer) is not None:
            return answer
        if answer.status in (401, 403):
            raise VerificationError("the server refuses the key that was put on its machine")
        if link.run("[ -e serve.gave-up ]").status == 0:
            said = " ".join(link.run("tail -n 12 serve.log").out.split())[-500:]
            raise VerificationError(f"the server does not start: {said}")
        size = link.run("stat -c %s serve.log 2>/dev/null; tail -n 1 serve.log").out
        if size != seen:
            seen, news = size, link.clock.now()
            link.say(f"serve: {size.strip().splitlines()[-1][-200:] if size.strip() else 'starts'}")
        if link.clock.now() - news > _QUIET:
            raise TimeLimitError(f"the server gives no sign for {_QUIET:.0f} s; see 'ninfer log'")
        link.clock.sleep(POLL)


def model_of(answer: Answer) -> dict[str, Any] | None:
    """The first model of a list; None when it is no list of models."""
    try:
        card: dict[str, Any] = answer.body["data"][0]
        return card if isinstance(card["id"], str) else None
    except (TypeError, KeyError, IndexError):
        return None


def one_token(link: Link, key: str, model: str) -> tuple[Answer, int]:
    """Have the server compute a token; the answer and the tokens it counted.

    Raises VerificationError when it does not.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say yes."}],
        "max_tokens": 1,
        "temperature": 0,
    }
    answer = ask(link, key, "/v1/chat/completions", body)
    try:
        tokens = int(answer.body["usage"]["completion_tokens"])
    except (TypeError, KeyError, ValueError):
        tokens = 0
    if answer.status != 200 or tokens < 1:
        raise VerificationError(
            f"the server lists {model} and does not answer with a token: HTTP {answer.status}"
        )
    return answer, tokens


def memory_of(link: Link) -> tuple[int, int]:
    """MiB of the server's processes and of the card. Raises HostBrokenError for other words."""
    words = link.need(MEMORY).split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        raise HostBrokenError(f"the machine does not tell its memory: {words}", category="")
    return int(words[0]), int(words[1])
