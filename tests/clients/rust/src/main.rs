//! What async-nats can do, each step one line: its name and what came of it.

use async_nats::jetstream::{self, consumer, kv, object_store, stream};
use async_nats::service::ServiceExt;
use async_nats::{Client, HeaderMap};
use futures::StreamExt;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::time::Duration;
use tokio::io::AsyncReadExt;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LONG: Duration = Duration::from_secs(5);

async fn step<T: Debug>(name: &str, work: impl Future<Output = Fallible<T>>) {
    match work.await {
        Ok(found) => println!("{name} {found:?}"),
        Err(error) => println!("{name} ERR {}", told(&*error)),
    }
}

fn told(error: &dyn Display) -> String {
    error.to_string().replace('\n', " ")
}

async fn next<S: StreamExt + Unpin>(messages: &mut S) -> Fallible<S::Item> {
    tokio::time::timeout(LONG, messages.next()).await?.ok_or_else(|| "the end".into())
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let address = std::env::args().nth(1).ok_or("the address of a server")?;
    let client = async_nats::connect(address).await?;
    core(&client).await;
    streams(&client).await;
    consumers(&client).await;
    features(&client).await;
    key_value(&client).await;
    objects(&client).await;
    services(&client).await;
    step("drain", async { Ok(client.drain().await?) }).await;
    Ok(())
}

async fn core(client: &Client) {
    step("publish", async {
        let mut messages = client.subscribe("a.*").await?;
        client.publish("a.b", "one".into()).await?;
        client.publish("a.b", "".into()).await?;
        let mut headers = HeaderMap::new();
        headers.append("K", "v1");
        headers.append("K", "v2");
        client.publish_with_headers("a.c", headers, "two".into()).await?;
        let mut got = Vec::new();
        for _ in 0..3 {
            let m = next(&mut messages).await?;
            let values = m.headers.map(|h| h.get_all("K").map(|v| v.to_string()).collect::<Vec<_>>());
            got.push((m.subject.to_string(), text(&m.payload), values));
        }
        Ok(got)
    })
    .await;
    step("unsubscribeAfter", async {
        let mut messages = client.subscribe("u").await?;
        messages.unsubscribe_after(2).await?;
        for n in 0..4 {
            client.publish("u", n.to_string().into()).await?;
        }
        let mut got = Vec::new();
        while let Some(m) = messages.next().await {
            got.push(text(&m.payload));
        }
        Ok(got)
    })
    .await;
    step("request", async {
        let mut asked = client.subscribe("svc").await?;
        let answering = client.clone();
        tokio::spawn(async move {
            while let Some(m) = asked.next().await {
                let answer = format!("re:{}", text(&m.payload));
                let _ = answering.publish(m.reply.unwrap(), answer.into()).await;
            }
        });
        Ok(text(&client.request("svc", "q".into()).await?.payload))
    })
    .await;
    step("noResponders", async {
        Ok(client.request("nobody", "q".into()).await.map_err(|e| format!("{:?}", e.kind()))?.length)
    })
    .await;
    step("server", async {
        let info = client.server_info();
        Ok((info.headers, info.max_payload, client.is_server_compatible(2, 11, 0)))
    })
    .await;
}

async fn streams(client: &Client) {
    let js = jetstream::new(client.clone());
    step("addStream", async {
        let made = js
            .create_stream(stream::Config {
                name: "S".into(),
                subjects: vec!["s.>".into()],
                max_messages: 100_000,
                max_bytes: 1 << 26,
                max_message_size: 1 << 20,
                max_age: Duration::from_secs(3600),
                duplicate_window: Duration::from_secs(60),
                description: Some("tour".into()),
                allow_direct: true,
                compression: Some(stream::Compression::S2),
                metadata: [("a".to_string(), "b".to_string())].into(),
                ..Default::default()
            })
            .await?;
        let config = &made.cached_info().config;
        Ok((config.description.clone(), config.num_replicas, config.storage))
    })
    .await;
    step("publishAck", async {
        let ack = js.publish("s.a", "hello".into()).await?.await?;
        Ok((ack.stream, ack.sequence, ack.duplicate))
    })
    .await;
    step("publishOnce", async {
        let once = || {
            jetstream::message::PublishMessage::build().payload("hello".into()).message_id("id1").header("X", "y")
        };
        let first = js.send_publish("s.b", once()).await?.await?;
        let again = js.send_publish("s.b", once()).await?.await?;
        Ok((first.sequence, again.sequence, again.duplicate))
    })
    .await;
    step("expectations", async {
        let wrong = jetstream::message::PublishMessage::build().expected_last_sequence(99);
        Ok(js.send_publish("s.b", wrong).await?.await?.sequence)
    })
    .await;
    step("publishMany", async {
        let mut waiting = Vec::new();
        for n in 0..500 {
            waiting.push(js.publish("s.m", format!("m{n}").into()).await?);
        }
        let mut last = 0;
        for ack in waiting {
            last = ack.await?.sequence;
        }
        Ok(last)
    })
    .await;
    step("nobodyStores", async { Ok(js.publish("nowhere", "x".into()).await?.await?.sequence) }).await;
    step("updateStream", async {
        let mut config = js.get_stream("S").await?.cached_info().config.clone();
        config.subjects.push("more.>".into());
        Ok(js.update_stream(config).await?.config.subjects)
    })
    .await;
    step("updateRefused", async {
        let mut config = js.get_stream("S").await?.cached_info().config.clone();
        config.storage = stream::StorageType::Memory;
        Ok(js.update_stream(config).await?.config.name)
    })
    .await;
    step("subjects", async {
        let mut subjects = js.get_stream("S").await?.info_with_subjects("s.>").await?;
        let mut seen = Vec::new();
        while let Some(each) = subjects.next().await {
            seen.push(each?);
        }
        seen.sort();
        Ok(seen)
    })
    .await;
    step("unknownStream", async { Ok(js.get_stream("NONE").await?.cached_info().config.name.clone()) }).await;
    step("names", async {
        let mut names = js.stream_names();
        let mut seen = Vec::new();
        while let Some(each) = names.next().await {
            seen.push(each?);
        }
        Ok((seen, js.stream_by_subject("more.x").await?))
    })
    .await;
    step("rawMessages", async {
        let s = js.get_stream("S").await?;
        let second = s.get_raw_message(2).await?;
        let last = s.get_last_raw_message_by_subject("s.m").await?;
        Ok((second.subject.to_string(), text(&second.payload), last.sequence))
    })
    .await;
    step("directGet", async {
        let s = js.get_stream("S").await?;
        let last = s.direct_get_last_for_subject("s.m").await?;
        Ok((s.direct_get(2).await?.subject.to_string(), last.sequence, s.direct_get_next_for_subject("s.>", Some(3)).await?.sequence))
    })
    .await;
    step("directGetNone", async { Ok(js.get_stream("S").await?.direct_get(9999).await?.sequence) }).await;
    step("deleteMessage", async { Ok(js.get_stream("S").await?.delete_message(1).await?) }).await;
    step("deletedMessage", async { Ok(js.get_stream("S").await?.get_raw_message(1).await?.sequence) }).await;
    step("purge", async { Ok(js.get_stream("S").await?.purge().filter("s.m").keep(50).await?.purged) }).await;
    step("account", async {
        let account = js.query_account().await?;
        Ok((account.streams, account.consumers, account.limits.max_streams))
    })
    .await;
}

async fn consumers(client: &Client) {
    let js = jetstream::new(client.clone());
    let Ok(s) = js.get_stream("S").await else { return println!("consumers: no stream") };
    step("addConsumer", async {
        let made = s
            .create_consumer(consumer::pull::Config {
                durable_name: Some("C".into()),
                max_deliver: 5,
                max_ack_pending: 500,
                filter_subjects: vec!["s.m".into(), "s.b".into()],
                description: Some("d".into()),
                ..Default::default()
            })
            .await?;
        Ok((made.cached_info().num_pending, made.cached_info().config.filter_subjects.clone()))
    })
    .await;
    step("createStrict", async {
        let other = consumer::pull::Config { durable_name: Some("C".into()), max_deliver: 7, ..Default::default() };
        Ok(s.create_consumer_strict(other).await?.cached_info().name.clone())
    })
    .await;
    let Ok(c) = s.get_consumer::<consumer::pull::Config>("C").await else { return println!("no consumer") };
    step("fetch", async {
        let mut batch = c.fetch().max_messages(5).messages().await?;
        let mut got = Vec::new();
        while let Some(m) = batch.next().await {
            let m = m?;
            let info = m.info()?;
            got.push((info.stream_sequence, info.pending));
            m.ack().await?;
        }
        Ok(got)
    })
    .await;
    step("batch", async {
        let mut batch = c.batch().max_messages(3).expires(Duration::from_secs(1)).messages().await?;
        let mut got = Vec::new();
        while let Some(m) = batch.next().await {
            let m = m?;
            m.double_ack().await?;
            got.push(m.info()?.stream_sequence);
        }
        Ok(got)
    })
    .await;
    step("nak", async {
        let mut messages = c.stream().max_messages_per_batch(1).messages().await?;
        let m = next(&mut messages).await??;
        let first = m.info()?.stream_sequence;
        m.ack_with(jetstream::AckKind::Nak(None)).await?;
        loop {
            let again = next(&mut messages).await??;
            again.ack_with(jetstream::AckKind::Progress).await?;
            let info = again.info()?;
            let (sequence, delivered) = (info.stream_sequence, info.delivered);
            again.ack_with(jetstream::AckKind::Term).await?;
            if sequence == first {
                return Ok(delivered);
            }
        }
    })
    .await;
    step("stream", async {
        let mut messages = c.messages().await?;
        let mut last = 0;
        loop {
            let m = next(&mut messages).await??;
            m.ack().await?;
            let info = m.info()?;
            last = info.stream_sequence.max(last);
            if info.pending == 0 {
                return Ok(last);
            }
        }
    })
    .await;
    step("heartbeats", async {
        let expires = Duration::from_millis(600);
        let mut batch = c.batch().max_messages(5).expires(expires).heartbeat(Duration::from_millis(200)).messages().await?;
        Ok(batch.next().await.is_none())
    })
    .await;
    step("ordered", async {
        let ordered = s.create_consumer(consumer::pull::OrderedConfig::default()).await?;
        let mut messages = ordered.messages().await?;
        let mut got = Vec::new();
        loop {
            let info = next(&mut messages).await??.info()?.stream_sequence;
            got.push(info);
            if info == 502 {
                return Ok((got.len(), got[0]));
            }
        }
    })
    .await;
    step("push", async {
        let made = s
            .create_consumer(consumer::push::Config {
                deliver_subject: client.new_inbox(),
                ack_policy: consumer::AckPolicy::None,
                flow_control: true,
                idle_heartbeat: Duration::from_secs(1),
                filter_subject: "s.m".into(),
                ..Default::default()
            })
            .await?;
        let mut messages = made.messages().await?;
        for _ in 0..50 {
            next(&mut messages).await??;
        }
        Ok("all")
    })
    .await;
    step("pushOrdered", async {
        let made = s
            .create_consumer(consumer::push::OrderedConfig { deliver_subject: client.new_inbox(), ..Default::default() })
            .await?;
        Ok(next(&mut made.messages().await?).await??.info()?.stream_sequence)
    })
    .await;
    step("updateConsumer", async {
        let mut config = c.cached_info().config.clone();
        config.max_deliver = 9;
        let wanted = consumer::pull::Config {
            durable_name: config.durable_name.take(),
            max_deliver: 9,
            max_ack_pending: 500,
            filter_subjects: config.filter_subjects.clone(),
            ..Default::default()
        };
        Ok(s.update_consumer(wanted).await?.cached_info().config.max_deliver)
    })
    .await;
    step("pause", async {
        let until = time::OffsetDateTime::now_utc() + Duration::from_secs(60);
        Ok((s.pause_consumer("C", until).await?.paused, s.resume_consumer("C").await?.paused))
    })
    .await;
    step("consumerNames", async {
        let mut names = s.consumer_names();
        let mut seen = Vec::new();
        while let Some(each) = names.next().await {
            seen.push(each?);
        }
        seen.retain(|name| name.len() < 3);
        Ok(seen)
    })
    .await;
    step("deleteConsumer", async { Ok(s.delete_consumer("C").await?.success) }).await;
    step("unknownConsumer", async { Ok(s.consumer_info("C").await?.name) }).await;
}

async fn features(client: &Client) {
    let js = jetstream::new(client.clone());
    let made = |config: stream::Config| js.create_stream(config);
    step("workQueue", async {
        let mut w = made(stream::Config {
            name: "W".into(),
            subjects: vec!["w".into()],
            retention: stream::RetentionPolicy::WorkQueue,
            storage: stream::StorageType::Memory,
            ..Default::default()
        })
        .await?;
        js.publish("w", "job".into()).await?.await?;
        let c = w.create_consumer(consumer::pull::Config { durable_name: Some("w".into()), ..Default::default() }).await?;
        next(&mut c.messages().await?).await??.double_ack().await?;
        Ok(w.info().await?.state.messages)
    })
    .await;
    step("discardNew", async {
        made(stream::Config {
            name: "N".into(),
            subjects: vec!["n.*".into()],
            max_messages_per_subject: 1,
            discard: stream::DiscardPolicy::New,
            discard_new_per_subject: true,
            ..Default::default()
        })
        .await?;
        js.publish("n.a", "1".into()).await?.await?;
        js.publish("n.b", "1".into()).await?.await?;
        Ok(js.publish("n.a", "2".into()).await?.await?.sequence)
    })
    .await;
    step("mirror", async {
        let mut m = made(stream::Config {
            name: "M".into(),
            mirror: Some(stream::Source { name: "S".into(), filter_subject: Some("s.m".into()), ..Default::default() }),
            ..Default::default()
        })
        .await?;
        for _ in 0..500 {
            if m.info().await?.state.messages == 50 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(m.info().await?.state.messages)
    })
    .await;
    step("republish", async {
        let mut copies = client.subscribe("copy.>").await?;
        made(stream::Config {
            name: "RP".into(),
            subjects: vec!["rp.*".into()],
            republish: Some(stream::Republish { source: "rp.*".into(), destination: "copy.{{wildcard(1)}}".into(), headers_only: false }),
            ..Default::default()
        })
        .await?;
        js.publish("rp.x", "y".into()).await?.await?;
        let m = next(&mut copies).await?;
        Ok((m.subject.to_string(), m.headers.and_then(|h| h.get("Nats-Sequence").map(|v| v.to_string()))))
    })
    .await;
    step("subjectTransform", async {
        let t = made(stream::Config {
            name: "T".into(),
            subjects: vec!["in.*".into()],
            subject_transform: Some(stream::SubjectTransform { source: "in.*".into(), destination: "out.{{wildcard(1)}}".into() }),
            ..Default::default()
        })
        .await?;
        js.publish("in.a", "x".into()).await?.await?;
        Ok(t.get_raw_message(1).await?.subject.to_string())
    })
    .await;
    step("sealed", async {
        made(stream::Config { name: "Z".into(), subjects: vec!["z".into()], ..Default::default() }).await?;
        let mut config = js.get_stream("Z").await?.cached_info().config.clone();
        config.sealed = true;
        js.update_stream(config).await?;
        Ok(js.publish("z", "x".into()).await?.await?.sequence)
    })
    .await;
    step("deleteStream", async { Ok(js.delete_stream("Z").await?.success) }).await;
}

async fn key_value(client: &Client) {
    let js = jetstream::new(client.clone());
    let made = js
        .create_key_value(kv::Config {
            bucket: "B".into(),
            history: 5,
            limit_markers: Some(Duration::from_secs(2)),
            ..Default::default()
        })
        .await;
    let Ok(bucket) = made else { return println!("kv {:?}", made.err()) };
    step("kvPut", async {
        let first = bucket.put("k", "v1".into()).await?;
        Ok((first, bucket.update("k", "v2".into(), first).await?, bucket.create("n", "z".into()).await?))
    })
    .await;
    step("kvCreateAgain", async { Ok(bucket.create("n", "q".into()).await?) }).await;
    step("kvWrongRevision", async { Ok(bucket.update("k", "v".into(), 1).await?) }).await;
    step("kvGet", async { Ok((bucket.get("k").await?.map(|v| text(&v)), bucket.get("none").await?.is_none())) }).await;
    step("kvRevision", async { Ok(bucket.entry_for_revision("k", 1).await?.map(|e| text(&e.value))) }).await;
    step("kvHistory", async {
        let mut history = bucket.history("k").await?;
        let mut seen = Vec::new();
        while let Some(e) = history.next().await {
            let e = e?;
            seen.push((e.revision, e.operation, text(&e.value), e.delta));
        }
        Ok(seen)
    })
    .await;
    step("kvDelete", async {
        bucket.delete("k").await?;
        bucket.purge("n").await?;
        let mut keys = bucket.keys().await?;
        Ok((bucket.entry("k").await?.map(|e| e.operation), keys.next().await.is_none()))
    })
    .await;
    step("kvTtl", async { Ok(bucket.create_with_ttl("t", "x".into(), Duration::from_secs(5)).await?) }).await;
    step("kvWatch", async {
        let mut changes = bucket.watch_with_history(">").await?;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let e = next(&mut changes).await??;
            seen.push((e.key, e.operation, e.seen_current));
        }
        bucket.put("w", "1".into()).await?;
        let e = next(&mut changes).await??;
        seen.push((e.key, e.operation, e.seen_current));
        Ok(seen)
    })
    .await;
    step("kvStatus", async {
        let status = bucket.status().await?;
        Ok((status.bucket().to_string(), status.history(), status.values()))
    })
    .await;
    step("kvDrop", async { Ok(js.delete_key_value("B").await?.success) }).await;
}

async fn objects(client: &Client) {
    let js = jetstream::new(client.clone());
    let made = js.create_object_store(object_store::Config { bucket: "O".into(), ..Default::default() }).await;
    let Ok(store) = made else { return println!("objects {:?}", made.err()) };
    let data = vec![7u8; 300_000];
    step("objPut", async {
        let info = store.put("f", &mut data.as_slice()).await?;
        Ok((info.size, info.chunks, info.digest))
    })
    .await;
    step("objGet", async {
        let mut back = Vec::new();
        store.get("f").await?.read_to_end(&mut back).await?;
        Ok(back == data)
    })
    .await;
    step("objLink", async {
        let whole = store.info("f").await?;
        Ok(store.add_link("l", &whole).await?.name)
    })
    .await;
    step("objList", async { Ok(store.list().await?.count().await) }).await;
    step("objDelete", async {
        store.delete("f").await?;
        Ok(store.get("f").await?.info().size)
    })
    .await;
}

async fn services(client: &Client) {
    step("services", async {
        let service = client.service_builder().description("x").start("calc", "1.0.0").await?;
        let mut endpoint = service.endpoint("sum").await?;
        tokio::spawn(async move {
            while let Some(asked) = endpoint.next().await {
                let _ = asked.respond(Ok("3".into())).await;
            }
        });
        let answer = text(&client.request("sum", "".into()).await?.payload);
        let told: serde_json::Value = serde_json::from_slice(&client.request("$SRV.STATS.calc", "".into()).await?.payload)?;
        let counted = (told["name"].to_string(), told["endpoints"][0]["num_requests"].to_string());
        service.stop().await?;
        Ok((answer, counted))
    })
    .await;
}
