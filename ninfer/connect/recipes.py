"""What each client has to have in its configuration to use one served model."""

from collections.abc import Iterator

from ninfer.connect.edits import Edit, Match, Path, ServedModel
from ninfer.errors import UsageError


def opencode(server: ServedModel, *, default: bool) -> Iterator[Edit]:
    """A provider of OpenCode, which speaks Chat Completions."""
    provider: Path = ("provider", server.provider)
    model: Path = (*provider, "models", server.model)
    yield Edit(("$schema",), "https://opencode.ai/config.json", only_if_absent=True)
    yield Edit((*provider, "npm"), "@ai-sdk/openai-compatible")
    yield Edit((*provider, "name"), server.provider, only_if_absent=True)
    yield Edit((*provider, "options", "baseURL"), server.openai_url)
    if server.needs_key is not False:
        yield Edit((*provider, "options", "apiKey"), f"{{env:{server.key_env}}}")
    yield Edit((*model, "name"), server.model, only_if_absent=True)
    yield Edit((*model, "tool_call"), True)
    yield Edit((*model, "reasoning"), True)
    yield Edit((*model, "attachment"), server.vision)
    inputs = ["text", "image"] if server.vision else ["text"]
    yield Edit((*model, "modalities"), {"input": inputs, "output": ["text"]})
    if server.context is not None:
        yield Edit((*model, "limit"), {"context": server.context, "output": server.output})
    if default:
        yield Edit(("model",), f"{server.provider}/{server.model}")


def claude_code(server: ServedModel, *, default: bool) -> Iterator[Edit]:
    """Settings of Claude Code, which speaks Messages and has one server at a time."""
    if not default:
        raise UsageError(
            "--keep-default: claude-code has one server at a time; without --write the settings "
            "are printed, and 'claude --settings FILE' uses them for one session"
        )
    values = {"ANTHROPIC_BASE_URL": server.root, "ANTHROPIC_MODEL": server.model}
    for size in ("HAIKU", "SONNET", "OPUS"):
        values[f"ANTHROPIC_DEFAULT_{size}_MODEL"] = server.model
    if server.context is not None:
        values["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(server.context)
        values["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(server.output)
    for name, value in values.items():
        yield Edit(("env", name), value)
    # The first line of its prompt otherwise changes with each request.
    yield Edit(("env", "CLAUDE_CODE_ATTRIBUTION_HEADER"), "0", only_if_absent=True)
    yield Edit(("env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"), "1", only_if_absent=True)
    # It does not start without a key, so there is one where the server wants none.
    yield Edit(("apiKeyHelper",), f"printenv {server.key_env} || echo unused")


def codex(server: ServedModel, *, default: bool) -> Iterator[Edit]:
    """A provider of Codex, which speaks Responses."""
    if default:
        yield Edit(("model",), server.model)
        yield Edit(("model_provider",), server.provider)
        if server.context is not None:
            yield Edit(("model_context_window",), server.context)
    provider: Path = ("model_providers", server.provider)
    yield Edit((*provider, "name"), server.provider, only_if_absent=True)
    yield Edit((*provider, "base_url"), server.openai_url)
    yield Edit((*provider, "wire_api"), "responses")
    # Codex does not start while a variable that it knows of is not set.
    key = None if server.needs_key is False else server.key_env
    yield Edit((*provider, "env_key"), key)


def qwen_code(server: ServedModel, *, default: bool) -> Iterator[Edit]:
    """A model of Qwen Code's OpenAI provider; it tells models apart by id and address."""
    entry = Match((("id", server.model), ("baseUrl", server.openai_url)))
    model: Path = ("modelProviders", "openai", entry)
    yield Edit((*model, "name"), f"{server.model} ({server.provider})", only_if_absent=True)
    yield Edit((*model, "envKey"), server.key_env)
    if server.context is not None:
        yield Edit((*model, "generationConfig", "contextWindowSize"), server.context)
    if server.vision:
        yield Edit((*model, "generationConfig", "modalities", "image"), True)
    if default:
        yield Edit(("security", "auth", "selectedType"), "openai")
        yield Edit(("model", "name"), server.model)


def zed(server: ServedModel, *, default: bool) -> Iterator[Edit]:
    """A provider of Zed, whose key variable is named after it."""
    if server.key_env != server.provider_key_env:
        raise UsageError(
            f"--key-env {server.key_env}: Zed reads the key of provider {server.provider} from "
            f"{server.provider_key_env} only"
        )
    if server.context is None:
        raise UsageError("zed needs the context length: start the server, or give --context N")
    provider: Path = ("language_models", "openai_compatible", server.provider)
    model: Path = (*provider, "available_models", Match((("name", server.model),)))
    yield Edit((*provider, "api_url"), server.openai_url)
    yield Edit((*model, "display_name"), server.model, only_if_absent=True)
    yield Edit((*model, "max_tokens"), server.context)
    yield Edit((*model, "max_output_tokens"), server.output)
    able = {
        "tools": True,
        "images": server.vision,
        "parallel_tool_calls": True,
        "prompt_cache_key": False,
        "chat_completions": True,
        "interleaved_reasoning": True,
    }
    for name, value in able.items():
        yield Edit((*model, "capabilities", name), value)
    if default:
        yield Edit(("agent", "default_model", "provider"), server.provider)
        yield Edit(("agent", "default_model", "model"), server.model)
