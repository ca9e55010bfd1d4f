// The Vercel AI SDK's providers on a server: tools in two steps, objects, pictures, errors. Prints
// what it got, as JSON. Arguments: the server's address, its key, two numbers, a PNG file.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages lie beside node, not beside this file.
const require = createRequire(`${process.env.CLIENTS}/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { generateText, streamText, stepCountIs, tool, Output } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { z } = await load("zod");

const [root, key, left, right, picture] = process.argv.slice(2);
const baseURL = `${root}/v1`;

const providers = {
    compatible: (apiKey) => {
        const options = { name: "own", baseURL, apiKey, includeUsage: true };
        return createOpenAICompatible({ ...options, supportsStructuredOutputs: true })("tiny");
    },
    chat: (apiKey) => createOpenAI({ baseURL, apiKey }).chat("tiny"),
    responses: (apiKey) => createOpenAI({ baseURL, apiKey }).responses("tiny"),
    messages: (apiKey) => createAnthropic({ baseURL, apiKey })("tiny"),
};

const multiply = tool({
    description: "The product of two numbers.",
    inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
    execute: async ({ a, b }) => a * b,
});

function task(model) {
    const prompt = `Multiply ${left} and ${right}.`;
    return { model, prompt, tools: { multiply }, stopWhen: stepCountIs(4), maxRetries: 0 };
}

async function told({ text, steps, totalUsage }) {
    const usage = await totalUsage;
    return {
        text: await text,
        thoughts: (await steps).map((step) => step.reasoningText ?? ""),
        used: usage.inputTokens + usage.outputTokens,
    };
}

const streamed = async (model) => {
    const result = streamText({ ...task(model), onError: ({ error }) => { throw error; } });
    await result.consumeStream();
    return told(result);
};

const shape = async (model) => {
    const schema = z.object({ word: z.string(), count: z.number().int() });
    const output = Output.object({ schema });
    return (await generateText({ model, prompt: "Shape", output, maxRetries: 0 })).output;
};

const look = async (model) => {
    const image = { type: "file", mediaType: "image/png", data: readFileSync(picture) };
    const content = [image, { type: "text", text: "Look" }];
    const asked = { model, messages: [{ role: "user", content }], maxRetries: 0 };
    return (await generateText(asked)).text;
};

const failure = async (model, prompt) => {
    try {
        await generateText({ model, prompt, maxRetries: 0 });
    } catch (error) {
        return { status: error.statusCode, message: error.message, again: error.isRetryable };
    }
    return {};
};

const found = {};
for (const [name, provider] of Object.entries(providers)) {
    const model = provider(key);
    found[name] = {
        whole: await told(await generateText(task(model))),
        streamed: await streamed(model),
        shape: await shape(model),
        picture: await look(model),
        "too long": await failure(model, "long ".repeat(20000)),
        "wrong key": await failure(provider("wrong"), "hello"),
    };
}
console.log(JSON.stringify(found));
