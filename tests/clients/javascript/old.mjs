// A tour with an old release of the Node client, from before it was split into packages.
const url = process.argv[2];
const nats = await import("nats");
const { connect, headers, StringCodec } = nats;
const sc = StringCodec();
const out = (k, v) =>
  console.log(k, JSON.stringify(v, (_k, x) => typeof x === "bigint" ? x.toString() : x));
const step = async (n, f) => {
  try {
    out(
      n,
      await Promise.race([
        f(),
        new Promise((_, r) => setTimeout(() => r(new Error("slow")), 8000)),
      ]),
    );
  } catch (e) {
    out(n, `ERR ${e.code ?? ""} ${e.message}`);
  }
};
const nc = await connect({ servers: url.replace("nats://", "") });
const OWN = new Set([
  "created",
  "ts",
  "timestamp",
  "last_active",
  "first_ts",
  "last_ts",
  "_nats.ver",
]);
const clean = (o) =>
  Array.isArray(o) ? o.map(clean) : o && typeof o === "object"
    ? Object.fromEntries(
      Object.entries(o).sort().map(([k, v]) => [k, OWN.has(k) ? "OWN" : clean(v)]),
    )
    : o;
const meta = (
  m,
) => [
  m.subject,
  sc.decode(m.data),
  m.info.streamSequence,
  m.info.deliverySequence,
  m.info.redeliveryCount ?? m.info.deliveryCount,
  m.info.pending,
  m.redelivered,
];
await step("core", async () => {
  const s = nc.subscribe("a.>", { max: 3 });
  const got = [];
  nc.publish("a.1", sc.encode("x"));
  const h = headers();
  h.append("K", "v1");
  h.append("K", "v2");
  nc.publish("a.2", sc.encode("y"), { headers: h });
  nc.publish("a.3");
  for await (const m of s) {
    got.push([m.subject, sc.decode(m.data), m.headers ? [...m.headers].map(String) : null]);
  }
  return got;
});
await step("request", async () => {
  const s = nc.subscribe("svc", { callback: (_e, m) => m.respond(sc.encode("re")) });
  const m = await nc.request("svc", sc.encode("q"), { timeout: 1000 });
  return sc.decode(m.data);
});
await step(
  "nomux",
  async () =>
    sc.decode((await nc.request("svc", sc.encode("q"), { timeout: 1000, noMux: true })).data),
);
await step(
  "nobody",
  async () => (await nc.request("nobody", undefined, { timeout: 1000 })).subject,
);
const jsm = await nc.jetstreamManager();
const js = nc.jetstream();
await step("account", async () => clean(await jsm.getAccountInfo()));
await step("add", async () => clean(await jsm.streams.add({ name: "S", subjects: ["s.>"] })));
await step("update", async () => {
  const i = await jsm.streams.info("S");
  i.config.max_msgs = 5000;
  try {
    return clean(await jsm.streams.update(i.config));
  } catch (e) {
    return clean(await jsm.streams.update("S", i.config));
  }
});
await step("pub", async () => {
  const r = [];
  for (let i = 0; i < 20; i++) {
    const a = await js.publish(`s.${i % 3}`, sc.encode(`d${i}`), { msgID: `${i % 19}` });
    r.push([a.stream, a.seq, a.duplicate]);
  }
  for (const expect of [{ lastSequence: 1 }, { streamName: "X" }, { lastMsgID: "q" }]) {
    try {
      await js.publish("s.x", sc.encode(""), { expect });
      r.push("ok");
    } catch (e) {
      r.push([e.code, e.message]);
    }
  }
  return r;
});
await step("nostream", async () => js.publish("none", sc.encode("")));
await step(
  "consumer",
  async () => clean(await jsm.consumers.add("S", { durable_name: "P", ack_policy: "explicit" })),
);
await step("pull", async () => {
  const r = [];
  for (let i = 0; i < 3; i++) {
    const m = await js.pull("S", "P");
    r.push(meta(m));
    m.ack();
  }
  return r;
});
await step("fetch", async () => {
  const r = [];
  const it = js.fetch("S", "P", { batch: 10, expires: 1000 });
  for await (const m of it) {
    r.push(meta(m));
    m.ack();
    if (r.length === 10) break;
  }
  return r;
});
await step("nowait", async () => {
  const r = [];
  const it = js.fetch("S", "P", { batch: 50, no_wait: true });
  for await (const m of it) {
    r.push(meta(m));
    m.ack();
  }
  return r;
});
await step("pullempty", async () => meta(await js.pull("S", "P")));
await step("push", async () => {
  const { consumerOpts, createInbox } = nats;
  const o = consumerOpts();
  o.durable("D");
  o.manualAck();
  o.ackExplicit();
  o.deliverTo(createInbox());
  o.filterSubject?.("s.1");
  const s = await js.subscribe("s.1", o);
  const r = [];
  for await (const m of s) {
    r.push(meta(m));
    m.ack();
    if (r.length === 6) break;
  }
  await nc.flush();
  return r;
});
await step("ordered", async () => {
  const { consumerOpts } = nats;
  const o = consumerOpts();
  if (!o.orderedConsumer) return "none";
  o.orderedConsumer();
  const s = await js.subscribe("s.2", o);
  const r = [];
  for await (const m of s) {
    r.push(meta(m));
    if (r.length === 5) break;
  }
  return r;
});
await step("psub", async () => {
  const { consumerOpts } = nats;
  const o = consumerOpts();
  o.durable("PS");
  o.ackExplicit();
  const s = await js.pullSubscribe("s.0", o);
  s.pull({ batch: 3 });
  const r = [];
  for await (const m of s) {
    r.push(meta(m));
    m.ack();
    if (r.length === 3) break;
  }
  return r;
});
await step("msg", async () => {
  const m = jsm.streams.getMessage.length > 1
    ? await jsm.streams.getMessage("S", { seq: 3 }).catch(() => jsm.streams.getMessage("S", 3))
    : await jsm.streams.getMessage("S", 3);
  return [m.subject, m.seq, sc.decode(m.data)];
});
await step("kv", async () => {
  if (!js.views) return "none";
  const kv = await js.views.kv("B", { history: 5 });
  const r = [await kv.put("a", sc.encode("1")), await kv.put("a", sc.encode("2"))];
  const e = await kv.get("a");
  r.push([e.key, sc.decode(e.value), e.revision, e.operation]);
  await kv.delete("a");
  r.push((await kv.get("a"))?.operation ?? null);
  await kv.put("b.c", sc.encode("z"));
  const ks = [];
  for await (const k of await kv.keys()) ks.push(k);
  r.push(ks.sort());
  const h = [];
  for await (const x of await kv.history({ key: "a" })) h.push([x.revision, x.operation]);
  r.push(h);
  r.push(clean((await kv.status()).values));
  r.push(await kv.destroy());
  return r;
});
await step("admin", async () => {
  const r = [];
  const l = [];
  for await (const c of jsm.consumers.list("S")) if (c.name.length < 6) l.push(c.name);
  r.push(l.sort());
  r.push(await jsm.consumers.delete("S", "P"));
  r.push(clean(await jsm.streams.purge("S")));
  r.push((await jsm.streams.info("S")).state.last_seq);
  r.push(await jsm.streams.delete("S"));
  try {
    await jsm.streams.info("S");
  } catch (e) {
    r.push(e.message);
  }
  return r;
});
await nc.drain();
out("closed", nc.isClosed());
process.exit(0);
