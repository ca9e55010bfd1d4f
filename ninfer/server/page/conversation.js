// The turns of a conversation and the messages that they are sent as. Knows nothing of the page.

export class Answer {
  reasoning = "";
  content = "";
  calls = [];
  results = []; // of the calls, as the user gave them
  finish = null;
  usage = null;
  error = null;
  stopped = false;
  thinkingMs = 0;

  add(delta) {
    if (delta.reasoning) this.reasoning += delta.reasoning;
    if (delta.content) this.content += delta.content;
    if (delta.call) this.#call(delta.call);
    if (delta.finish) this.finish = delta.finish;
    if (delta.usage) this.usage = delta.usage;
  }

  get isEmpty() {
    return !this.reasoning && !this.content && !this.calls.length;
  }

  // Whether calls wait for results. A cut-off answer's calls may be half written.
  get wantsResults() {
    return this.finish !== null && this.calls.length > 0;
  }

  messages() {
    const message = { role: "assistant", content: this.content };
    if (this.reasoning) message.reasoning_content = this.reasoning;
    if (!this.wantsResults) return [message];
    message.tool_calls = this.calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
    const results = this.calls.map((call, i) => ({
      role: "tool",
      tool_call_id: call.id,
      content: this.results[i] ?? "no result",
    }));
    return [message, ...results];
  }

  #call(part) {
    const index = part.index ?? 0;
    const call = (this.calls[index] ??= { id: "", name: "", arguments: "" });
    call.id = part.id || call.id || `call_${index}`;
    call.name = part.function?.name || call.name;
    call.arguments += part.function?.arguments ?? "";
  }
}

export class Question {
  constructor(text, images = []) {
    this.text = text;
    this.images = images; // data URLs
  }

  messages() {
    if (!this.images.length) return [{ role: "user", content: this.text }];
    const images = this.images.map((url) => ({ type: "image_url", image_url: { url } }));
    return [{ role: "user", content: [...images, { type: "text", text: this.text }] }];
  }
}

export class Conversation {
  turns = []; // questions and answers as they follow each other

  messages(system) {
    const first = system ? [{ role: "system", content: system }] : [];
    return first.concat(this.turns.filter((t) => !t.isEmpty).flatMap((t) => t.messages()));
  }
}

// Members of a request that the settings ask for. Throws with a readable text for bad tools.
export function requestFields(settings) {
  const body = {};
  if (settings.model) body.model = settings.model;
  for (const name of ["temperature", "top_p", "seed"]) {
    if (settings[name] !== "" && settings[name] != null) body[name] = Number(settings[name]);
  }
  if (settings.max_tokens) body.max_completion_tokens = Number(settings.max_tokens);
  if (!settings.thinking) body.chat_template_kwargs = { enable_thinking: false };
  else if (settings.effort) body.reasoning_effort = settings.effort;
  const tools = parseTools(settings.tools);
  if (tools.length) body.tools = tools;
  return body;
}

export function parseTools(text) {
  if (!text?.trim()) return [];
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`Tools: not JSON: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new Error("Tools: must be an array");
  for (const tool of tools) {
    if (tool?.type !== "function" || typeof tool.function?.name !== "string") {
      throw new Error('Tools: each must be {"type": "function", "function": {"name": …}}');
    }
  }
  return tools;
}
