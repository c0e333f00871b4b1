import io.nats.client.*;
import io.nats.client.api.*;
import io.nats.client.impl.Headers;
import io.nats.service.*;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Scanner;
import java.util.concurrent.*;

/** What a program of jnats does while its servers come and go (tests/clients/troubles.py). */
public class Trouble {
    interface Work {
        void run() throws Exception;
    }

    interface Numbered {
        void run(long number) throws Exception;
    }

    static final Duration TWO = Duration.ofSeconds(2);
    static final int WINDOW = 8;
    static volatile boolean stopped;

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void failed(String what, Throwable error) {
        say("ERROR " + what + " " + error.getClass().getSimpleName() + " " + ("" + error.getMessage()).replaceAll("\\s+", " "));
    }

    static byte[] bytes(Object value) {
        return ("" + value).getBytes(StandardCharsets.UTF_8);
    }

    static void insist(String who, long number, Work work) throws InterruptedException {
        while (true) {
            try {
                work.run();
                say("ACKED " + who + " " + number);
                return;
            } catch (Exception error) {
                failed(who, error);
                Thread.sleep(100);
            }
        }
    }

    static Thread started(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                failed("thread", error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static Thread repeat(long pause, Numbered work) {
        return started(() -> {
            for (long number = 0; !stopped; number++) {
                work.run(number);
                Thread.sleep(pause);
            }
        });
    }

    static Connection user(String urls) throws Exception {
        return Nats.connect(new Options.Builder().servers(urls.split(",")).noRandomize().maxReconnects(-1)
            .errorListener(new ErrorListener() { })
            .connectionListener((nc, event) -> {
                if (event == ConnectionListener.Events.DISCONNECTED) say("LINK disconnect");
                if (event == ConnectionListener.Events.RECONNECTED) say("LINK reconnect");
            }).build());
    }

    static void store(JetStream js, String kind, long number) throws Exception {
        js.publish("trouble." + kind, bytes(number), PublishOptions.builder().messageId(kind.charAt(0) + "" + number).build());
    }

    static void publishers(Connection nc) throws Exception {
        JetStream js = nc.jetStream();
        KeyValue kv = nc.keyValue("TROUBLEKV");
        ObjectStore objects = nc.objectStore("TROUBLEOBJ");
        Semaphore room = new Semaphore(WINDOW);
        byte[] blob = new byte[200_000];
        Thread[] all = {
            repeat(10, n -> insist("sync", n, () -> store(js, "sync", n))),
            repeat(5, n -> {
                room.acquire();
                PublishOptions once = PublishOptions.builder().messageId("a" + n).build();
                js.publishAsync("trouble.async", bytes(n), once).whenComplete((ack, error) -> started(() -> {
                    if (error == null) {
                        say("ACKED async " + n);
                    } else {
                        failed("async", error);
                        Thread.sleep(100);
                        insist("async", n, () -> store(js, "async", n));
                    }
                    room.release();
                }));
            }),
            repeat(20, n -> insist("kv", n, () -> kv.put("k", bytes(n)))),
            repeat(500, n -> insist("object", n, () -> objects.put("o" + n, new ByteArrayInputStream(blob)))),
            repeat(20, n -> insist("asked", n, () -> {
                if (nc.request("trouble.service", null, TWO) == null) throw new TimeoutException("no answer");
            })),
            repeat(10, n -> insist("queue", n, () -> nc.publish("trouble.queue", bytes(n)))),
        };
        for (Thread each : all) each.join();
        room.acquire(WINDOW);
        nc.flush(TWO);
    }

    static void consume(Connection nc) throws Exception {
        ExecutorService acks = Executors.newFixedThreadPool(WINDOW);
        ConsumeOptions few = ConsumeOptions.builder().batchSize(50).build();
        while (true) {
            try (IterableConsumer messages = nc.getConsumerContext("TROUBLE", "work").iterate(few)) {
                while (true) {
                    Message message = messages.nextMessage(1000);
                    if (message == null) continue;
                    long sequence = message.metaData().streamSequence();
                    say("GOT work " + sequence);
                    acks.submit(() -> {
                        try {
                            message.ackSync(TWO);
                            say("DONE " + sequence);
                        } catch (Exception error) {
                            failed("ack", error);
                        }
                    });
                }
            } catch (Exception error) {
                failed("consume", error);
                Thread.sleep(100);
            }
        }
    }

    static void ordered(Connection nc) throws Exception {
        OrderedConsumerContext context = nc.getStreamContext("TROUBLE").createOrderedConsumer(new OrderedConsumerConfiguration());
        try (IterableConsumer messages = context.iterate()) {
            while (true) {
                Message message = messages.nextMessage(1000);
                if (message != null) say("GOT ordered " + message.metaData().streamSequence());
            }
        } catch (Exception error) {
            failed("ordered", error);
        }
    }

    static void receivers(Connection nc) throws Exception {
        Dispatcher heard = nc.createDispatcher();
        for (int i = 0; i < 2; i++) {
            heard.subscribe("trouble.queue", "q", m -> say("GOT queue " + new String(m.getData())));
        }
        new ServiceBuilder().connection(nc).name("trouble").version("1.0.0").addServiceEndpoint(
            ServiceEndpoint.builder().endpointName("trouble").endpointSubject("trouble.service")
                .handler(m -> m.respond(nc, "")).build()).build().startService();
        nc.keyValue("TROUBLEKV").watchAll(new KeyValueWatcher() {
            public void watch(KeyValueEntry entry) { say("GOT watch " + entry.getRevision()); }
            public void endOfData() { }
        });
        started(() -> consume(nc));
        started(() -> ordered(nc));
        nc.flush(TWO);
    }

    public static void main(String[] words) throws Exception {
        Connection sender = user(words[0]), receiver = user(words[0]);
        receivers(receiver);
        say("READY");
        Thread sending = started(() -> publishers(sender));
        Scanner driver = new Scanner(System.in);
        driver.nextLine();
        stopped = true;
        sending.join();
        say("STOPPED");
        driver.nextLine();
        System.exit(0);
    }
}
