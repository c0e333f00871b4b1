import io.nats.client.*;
import io.nats.client.api.*;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import io.nats.service.*;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.ZonedDateTime;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;

/** What jnats can do, each step one line: its name and what came of it. */
public class Tour {
    interface Step {
        Object run() throws Exception;
    }

    static final Duration SECOND = Duration.ofSeconds(1);
    static final Duration LONG = Duration.ofSeconds(5);

    static void step(String name, Step step) {
        Object found;
        try {
            found = step.run();
        } catch (Exception error) {
            found = "ERR " + error.getClass().getSimpleName() + " " + error.getMessage();
        }
        System.out.println(name + " " + found);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(Message message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    public static void main(String[] words) throws Exception {
        Options options = new Options.Builder().server(words[0]).maxReconnects(3)
            .errorListener(new ErrorListener() { }).build();
        try (Connection nc = Nats.connect(options)) {
            core(nc);
            streams(nc);
            consumers(nc);
            reads(nc);
            keyValue(nc);
            objects(nc);
            services(nc);
            step("drain", () -> nc.drain(SECOND).get(10, TimeUnit.SECONDS));
        }
        System.exit(0);
    }

    static void core(Connection nc) {
        step("publish", () -> {
            Subscription sub = nc.subscribe("a.*");
            nc.publish("a.b", bytes("one"));
            nc.publish("a.b", null);
            Headers headers = new Headers().add("K", "v1", "v2");
            nc.publish("a.c", headers, bytes("two"));
            List<String> got = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Message m = sub.nextMessage(LONG);
                got.add(m.getSubject() + "=" + text(m) + "/" + (m.hasHeaders() ? m.getHeaders().get("K") : null));
            }
            sub.unsubscribe();
            return got;
        });
        step("unsubscribeAfter", () -> {
            Subscription sub = nc.subscribe("u").unsubscribe(2);
            for (int i = 0; i < 4; i++) nc.publish("u", bytes("" + i));
            nc.flush(LONG);
            String got = text(sub.nextMessage(LONG)) + text(sub.nextMessage(LONG));
            return got + sub.isActive();
        });
        step("queue", () -> {
            AtomicInteger seen = new AtomicInteger();
            CountDownLatch all = new CountDownLatch(100);
            Dispatcher d = nc.createDispatcher(m -> { seen.incrementAndGet(); all.countDown(); });
            for (int i = 0; i < 4; i++) d.subscribe("q", "workers");
            for (int i = 0; i < 100; i++) nc.publish("q", null);
            all.await(5, TimeUnit.SECONDS);
            nc.flush(LONG);
            return seen.get();
        });
        step("request", () -> {
            nc.createDispatcher(m -> nc.publish(m.getReplyTo(), bytes("re:" + text(m)))).subscribe("svc");
            return text(nc.request("svc", bytes("q"), LONG));
        });
        step("noResponders", () -> {
            try {
                return nc.requestWithTimeout("nobody", null, LONG).get(5, TimeUnit.SECONDS);
            } catch (CancellationException | ExecutionException error) {
                return error.getClass().getSimpleName();
            }
        });
        step("server", () -> nc.getServerInfo().isJetStreamAvailable() + " " + nc.getServerInfo().isHeadersSupported()
            + " " + (nc.RTT().toNanos() > 0));
    }

    static void streams(Connection nc) throws Exception {
        JetStreamManagement jsm = nc.jetStreamManagement();
        JetStream js = nc.jetStream();
        step("addStream", () -> jsm.addStream(StreamConfiguration.builder().name("S").subjects("s.>")
            .storageType(StorageType.File).maxMessages(100_000).maxBytes(1 << 26).maximumMessageSize(1 << 20)
            .maxAge(Duration.ofHours(1)).duplicateWindow(Duration.ofSeconds(60)).allowDirect(true)
            .description("tour").metadata(Map.of("a", "b")).compressionOption(CompressionOption.S2)
            .discardPolicy(DiscardPolicy.Old).build()).getConfiguration().getDescription());
        step("publishAck", () -> {
            PublishAck ack = js.publish("s.a", bytes("hello"));
            return ack.getStream() + ack.getSeqno() + ack.isDuplicate();
        });
        step("publishOnce", () -> {
            PublishOptions once = PublishOptions.builder().messageId("id1").expectedStream("S").build();
            Headers headers = new Headers().put("X", "y");
            PublishAck first = js.publish("s.b", headers, bytes("hello"), once);
            PublishAck again = js.publish("s.b", headers, bytes("hello"), once);
            return first.getSeqno() + " " + again.getSeqno() + " " + again.isDuplicate();
        });
        step("expectations", () -> js.publish("s.b", bytes("x"), PublishOptions.builder().expectedLastSequence(99).build()));
        step("expectedSubject", () -> js.publish("s.b", bytes("x"),
            PublishOptions.builder().expectedLastSubjectSequence(2).build()).getSeqno());
        step("publishAsync", () -> {
            List<CompletableFuture<PublishAck>> acks = new ArrayList<>();
            for (int i = 0; i < 500; i++) acks.add(js.publishAsync("s.m", bytes("m" + i)));
            long last = 0;
            for (CompletableFuture<PublishAck> ack : acks) last = ack.get(5, TimeUnit.SECONDS).getSeqno();
            return last;
        });
        step("nobodyStores", () -> js.publish("nowhere", bytes("x")));
        step("updateStream", () -> jsm.updateStream(StreamConfiguration.builder(jsm.getStreamInfo("S").getConfiguration())
            .addSubjects("more.>").build()).getConfiguration().getSubjects());
        step("updateRefused", () -> jsm.updateStream(StreamConfiguration.builder(jsm.getStreamInfo("S").getConfiguration())
            .storageType(StorageType.Memory).build()));
        step("streamInfo", () -> {
            StreamInfo info = jsm.getStreamInfo("S", StreamInfoOptions.allSubjects());
            Map<String, Long> subjects = new TreeMap<>();
            for (Subject each : info.getStreamState().getSubjects()) subjects.put(each.getName(), each.getCount());
            return info.getStreamState().getMsgCount() + " " + subjects;
        });
        step("unknownStream", () -> jsm.getStreamInfo("NONE"));
        step("names", () -> jsm.getStreamNames() + " " + jsm.getStreamNames("more.x"));
        step("getMessage", () -> {
            MessageInfo m = jsm.getMessage("S", 2);
            return m.getSubject() + new String(m.getData()) + m.getHeaders().get("X");
        });
        step("getLast", () -> jsm.getLastMessage("S", "s.m").getSeq() + " " + jsm.getFirstMessage("S", "s.m").getSeq()
            + " " + jsm.getNextMessage("S", 10, "s.>").getSeq());
        step("deleteMessage", () -> jsm.deleteMessage("S", 1) + " " + jsm.deleteMessage("S", 4, false));
        step("deletedMessage", () -> jsm.getMessage("S", 1));
        step("purge", () -> jsm.purgeStream("S", PurgeOptions.builder().subject("s.m").keep(50).build()).getPurged());
        step("account", () -> jsm.getAccountStatistics().getStreams() + " " + jsm.getAccountStatistics().getConsumers());
    }

    static void consumers(Connection nc) throws Exception {
        JetStreamManagement jsm = nc.jetStreamManagement();
        JetStream js = nc.jetStream();
        step("addConsumer", () -> {
            ConsumerInfo info = jsm.addOrUpdateConsumer("S", ConsumerConfiguration.builder().durable("C")
                .ackPolicy(AckPolicy.Explicit).ackWait(Duration.ofSeconds(30)).maxDeliver(5).maxAckPending(500)
                .filterSubjects("s.m", "s.b").description("d").metadata(Map.of("k", "v")).build());
            return info.getNumPending() + " " + info.getConsumerConfiguration().getFilterSubjects();
        });
        step("createTwice", () -> jsm.createConsumer("S", ConsumerConfiguration.builder().durable("C")
            .ackPolicy(AckPolicy.None).build()));
        step("fetch", () -> {
            List<String> got = new ArrayList<>();
            try (FetchConsumer fetch = js.getStreamContext("S").getConsumerContext("C").fetchMessages(5)) {
                for (Message m = fetch.nextMessage(); m != null; m = fetch.nextMessage()) {
                    got.add(m.metaData().streamSequence() + "/" + m.metaData().pendingCount());
                    m.ack();
                }
            }
            return got;
        });
        step("next", () -> {
            Message m = js.getConsumerContext("S", "C").next(LONG);
            m.ackSync(LONG);
            return m.metaData().streamSequence();
        });
        step("nak", () -> {
            ConsumerContext c = js.getConsumerContext("S", "C");
            Message m = c.next(LONG);
            m.nak();
            Thread.sleep(200);
            Message again = c.next(LONG);
            again.inProgress();
            again.term();
            return (m.metaData().streamSequence() == again.metaData().streamSequence()) + " " + again.metaData().deliveredCount();
        });
        step("nakLater", () -> {
            ConsumerContext c = js.getConsumerContext("S", "C");
            Message m = c.next(LONG);
            m.nakWithDelay(Duration.ofMillis(200));
            long other = c.next(LONG).metaData().streamSequence();
            return other - m.metaData().streamSequence();
        });
        step("consume", () -> {
            CountDownLatch all = new CountDownLatch(40);
            try (MessageConsumer running = js.getConsumerContext("S", "C").consume(m -> { m.ack(); all.countDown(); })) {
                boolean done = all.await(5, TimeUnit.SECONDS);
                running.stop();
                return done;
            }
        });
        step("iterate", () -> {
            OrderedConsumerContext c = js.getStreamContext("S").createOrderedConsumer(new OrderedConsumerConfiguration());
            List<Long> got = new ArrayList<>();
            try (IterableConsumer it = c.iterate()) {
                for (Message m = it.nextMessage(LONG); m != null; m = it.nextMessage(LONG)) {
                    got.add(m.metaData().streamSequence());
                    if (m.metaData().pendingCount() == 0) break;
                }
            }
            return got.size() + " " + got.get(0) + " " + got.get(got.size() - 1);
        });
        step("pullExpires", () -> {
            ConsumerContext c = js.getConsumerContext("S", "C");
            List<Long> rest = new ArrayList<>();
            for (Message m = c.next(SECOND); m != null; m = c.next(SECOND)) {
                rest.add(m.metaData().streamSequence());
                m.ack();
            }
            return rest;
        });
        step("pullSubscription", () -> {
            JetStreamSubscription sub = js.subscribe("s.m", PullSubscribeOptions.builder().durable("OLD").build());
            sub.pullNoWait(10);
            int seen = 0;
            for (Message m = sub.nextMessage(SECOND); m != null && m.isJetStream(); m = sub.nextMessage(SECOND)) {
                m.ack();
                seen++;
            }
            sub.pullExpiresIn(5, Duration.ofMillis(500));
            List<Message> more = sub.fetch(5, SECOND);
            sub.unsubscribe();
            return seen + " " + more.size();
        });
        step("push", () -> {
            JetStreamSubscription sub = js.subscribe("s.m", PushSubscribeOptions.builder().configuration(
                ConsumerConfiguration.builder().flowControl(SECOND).ackPolicy(AckPolicy.None).build()).build());
            int seen = 0;
            for (Message m = sub.nextMessage(LONG); m != null; m = sub.nextMessage(LONG)) {
                seen++;
                if (m.metaData().pendingCount() == 0) break;
            }
            return seen;
        });
        step("pushQueue", () -> {
            CountDownLatch all = new CountDownLatch(50);
            PushSubscribeOptions shared = PushSubscribeOptions.builder().durable("PQ").deliverGroup("g").build();
            Dispatcher d = nc.createDispatcher();
            js.subscribe("s.m", "g", d, m -> all.countDown(), true, shared);
            js.subscribe("s.m", "g", d, m -> all.countDown(), true, shared);
            return all.await(5, TimeUnit.SECONDS);
        });
        step("ordered", () -> {
            JetStreamSubscription sub = js.subscribe("s.>", PushSubscribeOptions.builder().ordered(true).build());
            return sub.nextMessage(LONG).metaData().streamSequence();
        });
        step("pause", () -> {
            boolean paused = jsm.pauseConsumer("S", "C", ZonedDateTime.now().plusMinutes(1)).isPaused();
            return paused + " " + jsm.resumeConsumer("S", "C");
        });
        step("priority", () -> {
            jsm.createConsumer("S", ConsumerConfiguration.builder().durable("G").filterSubject("s.m")
                .priorityPolicy(PriorityPolicy.Overflow).priorityGroups("A").build());
            JetStreamSubscription sub = js.subscribe(null, PullSubscribeOptions.bind("S", "G"));
            sub.pull(PullRequestOptions.builder(5).group("A").minPending(1).expiresIn(SECOND).build());
            return sub.nextMessage(LONG).metaData().streamSequence() > 0;
        });
        step("reset", () -> jsm.getConsumerInfo("S", "C").getConsumerConfiguration().getMaxDeliver());
        step("consumerNames", () -> {
            List<String> names = new ArrayList<>(jsm.getConsumerNames("S"));
            names.removeIf(name -> name.length() > 3);
            Collections.sort(names);
            return names;
        });
        step("deleteConsumer", () -> jsm.deleteConsumer("S", "C"));
        step("unknownConsumer", () -> jsm.getConsumerInfo("S", "C"));
    }

    static void reads(Connection nc) throws Exception {
        JetStreamManagement jsm = nc.jetStreamManagement();
        JetStream js = nc.jetStream();
        step("workQueue", () -> {
            jsm.addStream(StreamConfiguration.builder().name("W").subjects("w").storageType(StorageType.Memory)
                .retentionPolicy(RetentionPolicy.WorkQueue).build());
            js.publish("w", bytes("job"));
            Message m = js.getStreamContext("W").createOrUpdateConsumer(
                ConsumerConfiguration.builder().durable("w").build()).next(LONG);
            m.ackSync(LONG);
            return jsm.getStreamInfo("W").getStreamState().getMsgCount();
        });
        step("discardNew", () -> {
            jsm.addStream(StreamConfiguration.builder().name("N").subjects("n").maxMessages(1)
                .discardPolicy(DiscardPolicy.New).build());
            js.publish("n", bytes("1"));
            return js.publish("n", bytes("2"));
        });
        step("mirror", () -> {
            jsm.addStream(StreamConfiguration.builder().name("M").mirror(Mirror.builder().sourceName("S")
                .filterSubject("s.m").build()).build());
            for (int i = 0; i < 500 && jsm.getStreamInfo("M").getStreamState().getMsgCount() < 50; i++) Thread.sleep(10);
            return jsm.getStreamInfo("M").getStreamState().getMsgCount();
        });
        step("source", () -> {
            jsm.addStream(StreamConfiguration.builder().name("R").sources(Source.builder().sourceName("S")
                .subjectTransforms(SubjectTransform.builder().source("s.m").destination("t.m").build()).build()).build());
            for (int i = 0; i < 500 && jsm.getStreamInfo("R").getStreamState().getMsgCount() < 50; i++) Thread.sleep(10);
            return jsm.getFirstMessage("R", "t.m").getSubject();
        });
        step("republish", () -> {
            Subscription sub = nc.subscribe("copy.>");
            jsm.addStream(StreamConfiguration.builder().name("RP").subjects("rp.*").republish(
                Republish.builder().source("rp.*").destination("copy.{{wildcard(1)}}").build()).build());
            js.publish("rp.x", bytes("y"));
            Message m = sub.nextMessage(LONG);
            return m.getSubject() + " " + m.getHeaders().getFirst("Nats-Sequence");
        });
        step("messageTtl", () -> {
            jsm.addStream(StreamConfiguration.builder().name("TT").subjects("tt").allowMessageTtl().build());
            js.publish("tt", bytes("x"), PublishOptions.builder().messageTtlSeconds(3).build());
            return jsm.getMessage("TT", 1).getHeaders().getFirst("Nats-TTL");
        });
        step("counter", () -> {
            jsm.addStream(StreamConfiguration.builder().name("CT").subjects("ct.>").allowMessageCounter(true)
                .allowDirect(true).build());
            js.publish("ct.a", new Headers().put("Nats-Incr", "5"), null);
            js.publish("ct.a", new Headers().put("Nats-Incr", "-2"), null);
            return new String(jsm.getLastMessage("CT", "ct.a").getData());
        });
        step("sealed", () -> {
            jsm.addStream(StreamConfiguration.builder().name("Z").subjects("z").build());
            jsm.updateStream(StreamConfiguration.builder(jsm.getStreamInfo("Z").getConfiguration()).seal().build());
            return js.publish("z", bytes("x"));
        });
        step("deleteStream", () -> jsm.deleteStream("Z") + " " + jsm.getStreamNames().size());
    }

    static void keyValue(Connection nc) throws Exception {
        KeyValueManagement kvm = nc.keyValueManagement();
        step("kvCreate", () -> kvm.create(KeyValueConfiguration.builder().name("B").maxHistoryPerKey(5)
            .storageType(StorageType.File).limitMarker(2000).build()).getMaxHistoryPerKey());
        KeyValue kv = nc.keyValue("B");
        step("kvPut", () -> kv.put("k", "v1") + " " + kv.update("k", bytes("v2"), 1) + " " + kv.create("n", bytes("z")));
        step("kvCreateAgain", () -> kv.create("n", bytes("q")));
        step("kvWrongRevision", () -> kv.update("k", bytes("v"), 1));
        step("kvGet", () -> kv.get("k").getValueAsString() + kv.get("k", 1).getValueAsString() + kv.get("none"));
        step("kvHistory", () -> {
            List<String> seen = new ArrayList<>();
            for (KeyValueEntry e : kv.history("k")) seen.add(e.getRevision() + "" + e.getOperation() + e.getValueAsString());
            return seen;
        });
        step("kvDelete", () -> {
            kv.delete("k");
            kv.purge("n");
            return kv.get("k") + " " + kv.keys() + " " + kv.getStatus().getEntryCount();
        });
        step("kvWatch", () -> {
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            kv.watchAll(new KeyValueWatcher() {
                public void watch(KeyValueEntry e) { seen.add(e.getKey() + "/" + e.getOperation()); }
                public void endOfData() { seen.add("end"); }
            });
            List<String> got = new ArrayList<>();
            for (String one = ""; !one.equals("end"); got.add(one)) one = seen.poll(5, TimeUnit.SECONDS);
            kv.put("w", "1");
            got.add(seen.poll(5, TimeUnit.SECONDS));
            return got;
        });
        step("kvNames", () -> kvm.getBucketNames());
        step("kvPurgeDeletes", () -> {
            kv.purgeDeletes();
            return kv.keys();
        });
        step("kvDrop", () -> {
            kvm.delete("B");
            return kvm.getBucketNames();
        });
    }

    static void objects(Connection nc) throws Exception {
        ObjectStoreManagement osm = nc.objectStoreManagement();
        step("objCreate", () -> osm.create(ObjectStoreConfiguration.builder("O").description("d").build()).getBucketName());
        ObjectStore os = nc.objectStore("O");
        byte[] data = new byte[300_000];
        Arrays.fill(data, (byte) 7);
        step("objPut", () -> {
            ObjectInfo info = os.put(ObjectMeta.builder("f").description("x").chunkSize(65536).build(), new ByteArrayInputStream(data));
            return info.getSize() + " " + info.getChunks() + " " + info.getDigest();
        });
        step("objGet", () -> {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            os.get("f", out);
            return Arrays.equals(data, out.toByteArray());
        });
        step("objLink", () -> os.addLink("l", os.getInfo("f")).isLink());
        step("objList", () -> os.getList().size());
        step("objDelete", () -> os.delete("f").isDeleted() + " " + os.getInfo("f"));
        step("objSeal", () -> os.seal().isSealed());
        step("objSealed", () -> os.put("g", data));
    }

    static void services(Connection nc) {
        step("services", () -> {
            Service service = new ServiceBuilder().connection(nc).name("calc").version("1.0.0").addServiceEndpoint(
                ServiceEndpoint.builder().endpointName("sum").endpointSubject("sum").handler(m -> m.respond(nc, "3")).build()).build();
            service.startService();
            nc.flush(LONG);
            String answer = text(nc.request("sum", null, LONG));
            Discovery found = new Discovery(nc, 1000, 1);
            String name = found.info("calc").get(0).getName();
            long requests = found.stats("calc").get(0).getEndpointStatsList().get(0).getNumRequests();
            service.stop();
            return answer + name + requests;
        });
    }
}
