// The server behind this page: models, health, metrics, and answers as they come.

import { eventData } from "./sse.js";

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export class Api {
  key = "";

  async models() {
    const body = await (await this.#ask("v1/models")).json();
    return Array.isArray(body.data) ? body.data.filter((m) => typeof m.id === "string") : [];
  }

  async healthy() {
    return (await fetch("health", { cache: "no-store" })).ok;
  }

  async metrics() {
    return (await this.#ask("metrics")).text();
  }

  // Deltas of one answer: {reasoning}, {content}, {call}, {finish}, {usage}. Throws ApiError also
  // when the stream stops before the answer has ended, so that half of it never passes for all.
  async *chat(body, signal) {
    const response = await this.#ask("v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    let ended = false;
    for await (const text of eventData(response.body)) {
      if (text.trim() === "[DONE]") break;
      const chunk = JSON.parse(text);
      if (chunk.error) throw new ApiError(chunk.error.message ?? String(chunk.error));
      if (chunk.usage) yield { usage: chunk.usage };
      const choice = chunk.choices?.[0];
      const delta = choice?.delta ?? {};
      const thought = delta.reasoning_content ?? delta.reasoning;
      if (thought) yield { reasoning: thought };
      if (delta.content) yield { content: delta.content };
      for (const call of delta.tool_calls ?? []) yield { call };
      if (choice?.finish_reason) {
        ended = true;
        yield { finish: choice.finish_reason };
      }
    }
    if (!ended) throw new ApiError("The connection ended before the answer did.");
  }

  async #ask(path, options = {}) {
    const headers = { ...options.headers };
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    let response;
    try {
      response = await fetch(path, { cache: "no-store", ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The server does not answer.");
    }
    if (response.ok) return response;
    const text = await response.text();
    let message = text.slice(0, 500) || response.statusText;
    try {
      message = JSON.parse(text).error.message;
    } catch {
      // Not the shape of this server's errors: show what came.
    }
    throw new ApiError(message, response.status);
  }
}
