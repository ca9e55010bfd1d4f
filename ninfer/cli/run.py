"""`ninfer run`: one prompt; the answer on stdout, everything else on stderr."""

from collections.abc import Sequence

from ninfer.cli.arguments import Parser, add_artifact, add_options, collect, parse, read_text
from ninfer.cli.output import AnswerPrinter, byte_progress, print_result
from ninfer.engine.generation_options import GenerationOptions, check_generation, template_options
from ninfer.engine.options import EngineOptions, RunOptions, check_engine, check_run
from ninfer.errors import PromptError
from ninfer.json_text import parse_json
from ninfer.log import configure


def build_parser() -> Parser:
    """The options of `ninfer run`, read from the option dataclasses."""
    parser = Parser("run", "Answer one prompt with the model of an artifact.")
    add_artifact(parser, "ARTIFACT")
    for group, options in (
        ("input and output", RunOptions),
        ("engine", EngineOptions),
        ("generation", GenerationOptions),
    ):
        add_options(parser.add_argument_group(group), options)
    return parser


def main(argv: Sequence[str]) -> int:
    """Run one prompt to its end."""
    namespace = parse(build_parser(), argv)
    run = collect(namespace, RunOptions)
    engine_options = collect(namespace, EngineOptions, artifact=namespace.artifact)
    generation = collect(namespace, GenerationOptions)
    check_run(run)
    check_engine(engine_options)
    check_generation(generation)
    configure(run.log_level)
    values, tools = _conversation_values(run)

    # Importing torch takes a second; options are checked before.
    from ninfer.audit.live import live_verdict
    from ninfer.engine import Engine
    from ninfer.engine.constraints import constraint_spec
    from ninfer.frontend import SourceRules, parse_conversation
    from ninfer.request import GenerationResult, TextDelta, ToolCallEnd

    try:
        conversation = parse_conversation(values, tools, template_options(generation))
    except PromptError as error:
        source = f"--messages {run.messages}: " if run.messages else ""
        raise PromptError(f"{source}{error}") from None
    with byte_progress("loading") as progress:
        engine = Engine.load(engine_options, progress)
    # Whoever runs the command may read the files anyway.
    prompt = engine.prepare(conversation, SourceRules(local_files=True))
    events = engine.generate(prompt, generation)
    said: list[str] = []
    with AnswerPrinter() as printer:
        for event in events:
            if isinstance(event, TextDelta):
                printer.show(event)
                said += [event.text] if event.channel == "content" else []
            elif isinstance(event, ToolCallEnd):
                printer.show_call(event.call)
            elif isinstance(event, GenerationResult):
                printer.end(event.usage)
                verdict = live_verdict(event, "".join(said), constraint_spec(generation))
                print_result(event, verdict, token_ids=run.print_token_ids)
    engine.close()
    return 0


def _conversation_values(run: RunOptions) -> tuple[object, object]:
    """Messages and tools as parsed JSON; shapes are checked by the frontend."""
    if run.messages is None:
        return [{"role": "user", "content": run.prompt}], None
    text = read_text("--messages", run.messages)
    where = f"--messages {run.messages}"
    values = parse_json(text, where, PromptError)
    if not isinstance(values, dict):
        return values, None
    if "messages" not in values:
        raise PromptError(f'{where}: the object has no "messages" array')
    for member in values:
        if member not in ("messages", "tools"):
            raise PromptError(
                f'{where}: member {member!r} is unknown; an object holds "messages" and "tools"'
            )
    return values["messages"], values.get("tools")
