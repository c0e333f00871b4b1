// What a program does while its servers come and go: each line is one thing that it has seen.
// tests/clients/troubles.py reads them; its first line says stop, its second one says the end.
import { createInterface } from "node:readline";
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";
import { Svcm } from "@nats-io/services";

const say = (...words) => process.stdout.write(words.join(" ") + "\n");
const failed = (what, e) => say("ERROR", what, e.constructor.name, String(e.message).replace(/\s+/g, " "));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const options = { servers: process.argv[2].split(","), maxReconnectAttempts: -1, noRandomize: true };
let stopped = false;

async function user() {
  const nc = await connect(options);
  (async () => { for await (const s of nc.status()) if (s.type === "disconnect" || s.type === "reconnect") say("LINK", s.type); })();
  return nc;
}

async function insist(who, id, work) {
  for (;;) {
    try { await work(); say("ACKED", who, id); return; } catch (e) { failed(who, e); await pause(100); }
  }
}

async function publishers(nc) {
  const js = jetstream(nc);
  const kv = await new Kvm(nc).open("TROUBLEKV");
  const objects = await new Objm(nc).open("TROUBLEOBJ");
  const repeat = async (ms, work) => { for (let n = 0; !stopped; n++) { await work(n); await pause(ms); } };
  const blob = new Uint8Array(200000).fill(7);
  const window = new Set();
  await Promise.all([
    repeat(10, (n) => insist("sync", n, () => js.publish("trouble.sync", "" + n, { msgID: "s" + n }))),
    repeat(5, async (n) => {
      const one = insist("async", n, () => js.publish("trouble.async", "" + n, { msgID: "a" + n }));
      window.add(one);
      one.then(() => window.delete(one));
      if (window.size >= 8) await Promise.race(window);
    }),
    repeat(20, (n) => insist("kv", n, () => kv.put("k", "" + n))),
    repeat(500, (n) => insist("object", n, () => objects.putBlob({ name: "o" + n }, blob))),
    repeat(20, (n) => insist("asked", n, () => nc.request("trouble.service", "" + n, { timeout: 2000 }))),
    repeat(10, (n) => { nc.publish("trouble.queue", "" + n); say("ACKED", "queue", n); }),
  ]);
  await Promise.all(window);
  await nc.flush();
}

async function consume(nc) {
  const consumer = await jetstream(nc).consumers.get("TROUBLE", "work");
  for (;;) {
    try {
      for await (const m of await consumer.consume({ max_messages: 50 })) {
        say("GOT", "work", m.seq);
        m.ackAck().then((sure) => sure ? say("DONE", m.seq) : say("ERROR", "ack unsure"), (e) => failed("ack", e));
      }
      say("ERROR consume ended");
    } catch (e) { failed("consume", e); }
    await pause(100);
  }
}

async function ordered(nc) {
  const consumer = await jetstream(nc).consumers.get("TROUBLE");
  try {
    for await (const m of await consumer.consume()) say("GOT", "ordered", m.seq);
    say("ERROR ordered ended");
  } catch (e) { failed("ordered", e); }
}

async function watch(nc) {
  const kv = await new Kvm(nc).open("TROUBLEKV");
  try {
    for await (const entry of await kv.watch()) say("GOT", "watch", entry.revision);
    say("ERROR watch ended");
  } catch (e) { failed("watch", e); }
}

const [sender, receiver] = [await user(), await user()];
for (let i = 0; i < 2; i++) receiver.subscribe("trouble.queue", { queue: "q", callback: (_, m) => say("GOT", "queue", m.string()) });
const service = await new Svcm(receiver).add({ name: "trouble", version: "1.0.0" });
service.addEndpoint("trouble", { subject: "trouble.service", handler: (_, m) => m.respond(m.data) });
consume(receiver); ordered(receiver); watch(receiver);
await receiver.flush();
say("READY");
const sending = publishers(sender);
for await (const _ of createInterface({ input: process.stdin })) {
  if (stopped) process.exit(0);
  stopped = true;
  sending.then(() => say("STOPPED"));
}
