// A client whose types come from openapi.yaml alone (openapi-typescript, openapi-fetch): what compiles here is what the
// document promises, and what runs here is what the service does. Prints "ok NAME" for each check.
import assert from "node:assert/strict";

import createClient from "openapi-fetch";

import type { components, paths } from "./api.js";

type Turn = components["schemas"]["Turn"];
type TurnRequest = components["schemas"]["TurnRequest"];
type Tool = components["schemas"]["CallerTool"];
type Code = components["schemas"]["Problem"]["code"];

function setting(name: string): string {
  const value = process.env[name];
  assert(value, `${name} is not set`);
  return value;
}

const baseUrl = setting("CLOISTER_URL");
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${setting("CLOISTER_KEY")}` } });
const stranger = createClient<paths>({ baseUrl });
const speaker = { id: "u1", name: "Ada" };
const channel = "client:typed";
const clock: Tool = {
  type: "function",
  function: {
    name: "get_time",
    description: "The time of a place",
    parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
  },
};

/** The document of an answer that is neither a problem nor a stream. */
function good<T>(answer: { data?: T; error?: unknown; response: Response }, status = 200): Exclude<T, string | undefined> {
  assert.equal(answer.response.status, status, JSON.stringify(answer.error));
  assert.equal(answer.response.headers.get("content-type"), "application/json");
  assert(typeof answer.data === "object");
  return answer.data as Exclude<T, string | undefined>;
}

/** The problem of this status and code. */
function problem(answer: { error?: components["schemas"]["Problem"]; response: Response }, status: number, code: Code) {
  assert(answer.error, `${answer.response.status} is no problem`);
  assert.deepEqual([answer.response.status, answer.error.status, answer.error.code], [status, status, code]);
  assert.equal(answer.response.headers.get("content-type"), "application/problem+json");
  assert.equal(answer.error.type, `/problems/${code}`);
  return answer.error;
}

async function run(body: TurnRequest): Promise<Turn> {
  const turn = good(await client.POST("/v1/turns", { body }));
  assert.equal(turn.status, "succeeded", JSON.stringify(turn.error));
  return turn;
}

const checks = {
  async channels() {
    const path = { key: channel };
    const made = good(await client.PUT("/v1/channels/{key}", { params: { path }, body: { enabled: true } }), 201);
    assert.deepEqual([made.key, made.enabled, made.busy, made.queued], [channel, true, false, 0]);
    const read = await client.GET("/v1/channels/{key}", { params: { path } });
    assert.equal(good(read).key, channel);
    const etag = read.response.headers.get("etag");
    assert(etag);
    const page = good(await client.GET("/v1/channels", { params: { query: { limit: 1 } } }));
    assert.deepEqual([page.data.map((one) => one.key), page.has_more, page.next_cursor], [[channel], false, null]);
    assert.equal(good(await client.POST("/v1/channels/{key}/reset", { params: { path } })).reset_pending, true);
    assert.equal(good(await client.POST("/v1/channels/{key}/stop", { params: { path } })).stopped, false);
    const stale = { path, header: { "If-Match": etag } };
    problem(await client.DELETE("/v1/channels/{key}", { params: stale }), 412, "precondition_failed");
  },

  async "a turn with text"() {
    const turn = await run({ channel, speaker, text: "Hello", metadata: { order: "17" } });
    assert.deepEqual([turn.reply?.text, turn.metadata?.["order"], turn.speaker.name], ["Hello", "17", "Ada"]);
    assert(turn.metrics && turn.finished_at && turn.error === null);
    const again = good(await client.GET("/v1/turns/{id}", { params: { path: { id: turn.id } } }));
    assert.deepEqual([again.id, again.reply], [turn.id, turn.reply]);
    const list = good(await client.GET("/v1/turns", { params: { query: { channel, status: "succeeded", limit: 5 } } }));
    assert(list.data.some((one) => one.id === turn.id));
    const events = good(await client.GET("/v1/turns/{id}/events", { params: { path: { id: turn.id } } }));
    assert.deepEqual([events.data[0]?.type, events.data.at(-1)?.type], ["queued", "ended"]);
  },

  async "a conversation with a tool of the caller"() {
    const question = { role: "user", content: '/call get_time {"place":"Berlin"}' } as const;
    const first = await run({ channel, speaker, messages: [question], tools: [clock] });
    const call = first.reply?.tool_calls?.[0];
    assert(call);
    assert.deepEqual([call.type, call.function.name], ["function", "get_time"]);
    assert.deepEqual(JSON.parse(call.function.arguments), { place: "Berlin" });
    const second = await run({
      channel,
      speaker,
      messages: [
        question,
        { role: "assistant", content: first.reply?.text ?? "", tool_calls: [call] },
        { role: "tool", content: "half past nine", tool_call_id: call.id },
      ],
      tools: [clock],
    });
    assert.match(second.reply?.text ?? "", /half past nine/);
    assert.equal(second.reply?.tool_calls, undefined);
  },

  async "a turn that is not waited for"() {
    const body: TurnRequest = { channel, speaker, text: "/sleep 50000\nlate" };
    const header = { Prefer: "respond-async", "Idempotency-Key": "typed-1" };
    const accepted = await client.POST("/v1/turns", { params: { header }, body });
    const turn = good(accepted, 202);
    assert.equal(accepted.response.headers.get("location"), `/v1/turns/${turn.id}`);
    const replayed = await client.POST("/v1/turns", { params: { header }, body });
    assert.deepEqual([good(replayed, 202).id, replayed.response.headers.get("idempotent-replayed")], [turn.id, "true"]);
    const ended = good(await client.POST("/v1/turns/{id}/cancel", { params: { path: { id: turn.id } } }));
    assert.deepEqual([ended.status, ended.error?.code, ended.reply], ["canceled", "canceled", null]);
  },

  async errors() {
    const body: TurnRequest = { channel, speaker, text: "Hello" };
    problem(await stranger.POST("/v1/turns", { body }), 401, "unauthorized");
    problem(await client.POST("/v1/turns", { body: { ...body, channel: "client:off" } }), 409, "channel_disabled");
    problem(await client.GET("/v1/turns/{id}", { params: { path: { id: "turn_0" } } }), 404, "not_found");
    problem(await client.GET("/v1/channels/{key}", { params: { path: { key: "client:none" } } }), 404, "not_found");
    problem(await client.GET("/v1/channels", { params: { query: { limit: 0 } } }), 400, "bad_request");
    const faults = problem(
      await client.POST("/v1/turns", { body: { ...body, text: "", speaker: { id: "", name: "Ada" } } }), 422, "invalid");
    assert.deepEqual(faults.errors?.map((fault) => fault.pointer).sort(), ["/speaker/id", "/text"]);
    const tool: Tool = { type: "function", function: { ...clock.function, name: "memory_set" } };
    const taken = problem(
      await client.POST("/v1/turns", { body: { channel, speaker, text: "x", tools: [tool] } }), 422, "invalid");
    assert.deepEqual(taken.errors?.map((fault) => fault.pointer), ["/tools/0/function/name"]);
  },

  async "what the types refuse, the service refuses"() {
    // @ts-expect-error no such member
    const extra: TurnRequest = { channel, speaker, text: "x", image: "y" };
    // @ts-expect-error the speaker is missing
    const nobody: TurnRequest = { channel, text: "x" };
    // @ts-expect-error no such role
    const robot: TurnRequest = { channel, speaker, messages: [{ role: "robot", content: "x" }] };
    // @ts-expect-error only text
    const picture: TurnRequest = { channel, speaker, messages: [{ role: "user", content: [{ type: "text", text: "x" }] }] };
    for (const body of [extra, nobody, robot, picture]) {
      problem(await client.POST("/v1/turns", { body }), 422, "invalid");
    }
    // @ts-expect-error a boolean
    const body: components["schemas"]["ChannelPut"] = { enabled: "yes" };
    problem(await client.PUT("/v1/channels/{key}", { params: { path: { key: channel } }, body }), 422, "invalid");
  },

  async "the service itself"() {
    assert.equal(good(await stranger.GET("/livez")).status, "ok");
    assert.equal(good(await stranger.GET("/readyz")).status, "ready");
    const { data } = await stranger.GET("/openapi.yaml", { parseAs: "text" });
    assert.match(data ?? "", /^openapi: 3\.1/);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`ok ${name}`);
}
