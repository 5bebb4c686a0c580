// node with_openai.mjs http://host:port: the openai package for JavaScript, through the same steps as scripted.py.
import assert from "node:assert/strict";
import OpenAI from "openai";

const base = process.argv[2];
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const same = { model: "any", temperature: 0, max_tokens: 24, seed: 1 };
const question = [
  { role: "system", content: "You answer in one short sentence." },
  { role: "user", content: "Name a colour of the sky." },
];
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 20 } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};

async function chat() {
  const whole = await client.chat.completions.create({ ...same, messages: question });
  let joined = "";
  const stream = await client.chat.completions.create({ ...same, messages: question, stream: true });
  for await (const chunk of stream) joined += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(joined, whole.choices[0].message.content);
}

async function tools() {
  const messages = [{ role: "user", content: "What is the weather in Paris?" }];
  const made = await client.chat.completions.create({
    model: "any", messages, tools: [weather], tool_choice: "required", max_tokens: 200,
  });
  const call = made.choices[0].message.tool_calls[0];
  assert.equal(made.choices[0].finish_reason, "tool_calls");
  assert.equal(call.function.name, "get_weather");
  assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
}

async function schema() {
  const wanted = {
    type: "object", properties: { age: { type: "integer", maximum: 150, minimum: 0 } }, required: ["age"],
    additionalProperties: false,
  };
  const made = await client.chat.completions.create({
    model: "any",
    messages: [{ role: "user", content: "How old is she?" }],
    response_format: { type: "json_schema", json_schema: { name: "age", schema: wanted, strict: true } },
  });
  assert.ok(Number.isInteger(JSON.parse(made.choices[0].message.content).age));
}

async function vectors() {
  const made = await client.embeddings.create({ model: "any", input: ["a", "another text"] });
  assert.equal(made.data.length, 2);
  assert.ok(made.data[0].embedding.length > 0 && made.data[0].embedding.every(Number.isFinite));
}

async function mistake() {
  const asked = client.chat.completions.create({ ...same, messages: question, temperature: -1 });
  await assert.rejects(asked, (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
}

async function cancel() {
  const stream = await client.chat.completions.create({ ...same, max_tokens: 2000, messages: question, stream: true });
  for await (const _ of stream) break;
  stream.controller.abort();
  for (let i = 0; i < 100; i++) {
    const slots = await (await fetch(`${base}/slots`)).json();
    if (!slots.some((slot) => slot.is_processing)) return;
    await new Promise((done) => setTimeout(done, 20));
  }
  assert.fail("a slot is busy though its client has left");
}

for (const step of [chat, tools, schema, vectors, mistake, cancel]) await step();
