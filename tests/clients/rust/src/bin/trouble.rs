//! What a program of async-nats does while its servers come and go (tests/clients/troubles.py).

use async_nats::jetstream::{self, consumer, message::PublishMessage};
use async_nats::service::ServiceExt;
use async_nats::{Client, Event};
use bytes::Bytes;
use futures::StreamExt;
use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

static STOPPED: AtomicBool = AtomicBool::new(false);
const WINDOW: u32 = 8;

fn failed(what: &str, error: impl Display) {
    println!("ERROR {what} {}", error.to_string().replace('\n', " "));
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await
}

async fn user(urls: &str) -> Fallible<Client> {
    let servers: Vec<async_nats::ServerAddr> = urls.split(',').map(|url| url.parse()).collect::<Result<_, _>>()?;
    let options = async_nats::ConnectOptions::new().retain_servers_order().event_callback(|event| async move {
        match event {
            Event::Disconnected => println!("LINK disconnect"),
            Event::Connected => println!("LINK reconnect"),
            _ => (),
        }
    });
    Ok(options.connect(servers).await?)
}

async fn insist<T, F: Future<Output = Fallible<T>>>(who: &str, number: u64, work: impl Fn() -> F) {
    loop {
        match work().await {
            Ok(_) => return println!("ACKED {who} {number}"),
            Err(error) => failed(who, error),
        }
        pause(100).await;
    }
}

async fn repeat<F: Future<Output = ()>>(milliseconds: u64, work: impl Fn(u64) -> F) {
    for number in 0.. {
        if STOPPED.load(Ordering::Relaxed) {
            return;
        }
        work(number).await;
        pause(milliseconds).await;
    }
}

async fn store(js: &jetstream::Context, kind: &str, number: u64) -> Fallible<u64> {
    let message = PublishMessage::build().payload(number.to_string().into()).message_id(format!("{}{number}", &kind[..1]));
    Ok(js.send_publish(format!("trouble.{kind}"), message).await?.await?.sequence)
}

async fn publishers(client: Client) -> Fallible<()> {
    let js = jetstream::new(client.clone());
    let kv = js.get_key_value("TROUBLEKV").await?;
    let objects = js.get_object_store("TROUBLEOBJ").await?;
    let room = Arc::new(Semaphore::new(WINDOW as usize));
    let blob = vec![7u8; 200_000];
    let (js, room, kv, objects, client, blob) = (&js, &room, &kv, &objects, &client, &blob);
    tokio::join!(
        repeat(10, |n| insist("sync", n, move || store(js, "sync", n))),
        repeat(5, |n| async move {
            let place = room.clone().acquire_owned().await.unwrap();
            let js = js.clone();
            tokio::spawn(async move {
                insist("async", n, || store(&js, "async", n)).await;
                drop(place);
            });
        }),
        repeat(20, |n| insist("kv", n, move || async move { Ok(kv.put("k", n.to_string().into()).await?) })),
        repeat(500, |n| insist("object", n, move || async move {
            Ok(objects.put(format!("o{n}").as_str(), &mut &blob[..]).await?)
        })),
        repeat(20, |n| insist("asked", n, move || async move {
            let asked = client.request("trouble.service", Bytes::new());
            Ok(tokio::time::timeout(Duration::from_secs(2), asked).await??)
        })),
        repeat(10, |n| insist("queue", n, move || async move {
            Ok(client.publish("trouble.queue", n.to_string().into()).await?)
        })),
    );
    let _all = room.acquire_many(WINDOW).await?;
    Ok(client.flush().await?)
}

async fn consume(js: jetstream::Context) {
    loop {
        let ended: Fallible<()> = async {
            let consumer: consumer::PullConsumer = js.get_consumer_from_stream("work", "TROUBLE").await?;
            let mut messages = consumer.stream().max_messages_per_batch(50).messages().await?;
            while let Some(message) = messages.next().await {
                let message = message?;
                let sequence = message.info()?.stream_sequence;
                println!("GOT work {sequence}");
                tokio::spawn(async move {
                    match message.double_ack().await {
                        Ok(()) => println!("DONE {sequence}"),
                        Err(error) => failed("ack", error),
                    }
                });
            }
            Err("ended".into())
        }
        .await;
        failed("consume", ended.unwrap_err());
        pause(100).await;
    }
}

async fn ordered(js: jetstream::Context) -> Fallible<()> {
    let stream = js.get_stream("TROUBLE").await?;
    let mut messages = stream.create_consumer(consumer::pull::OrderedConfig::default()).await?.messages().await?;
    while let Some(message) = messages.next().await {
        match message {
            Ok(message) => println!("GOT ordered {}", message.info()?.stream_sequence),
            Err(error) => failed("ordered", error),
        }
    }
    Err("ended".into())
}

async fn watch(js: jetstream::Context) -> Fallible<()> {
    let mut entries = js.get_key_value("TROUBLEKV").await?.watch_all().await?;
    while let Some(entry) = entries.next().await {
        match entry {
            Ok(entry) => println!("GOT watch {}", entry.revision),
            Err(error) => failed("watch", error),
        }
    }
    Err("ended".into())
}

async fn receivers(client: Client) -> Fallible<()> {
    let js = jetstream::new(client.clone());
    for _ in 0..2 {
        let mut members = client.queue_subscribe("trouble.queue", "q".into()).await?;
        tokio::spawn(async move {
            while let Some(message) = members.next().await {
                println!("GOT queue {}", String::from_utf8_lossy(&message.payload));
            }
        });
    }
    let service = client.service_builder().start("trouble", "1.0.0").await?;
    let mut endpoint = service.endpoint("trouble.service").await?;
    tokio::spawn(async move {
        while let Some(request) = endpoint.next().await {
            let _ = request.respond(Ok(Bytes::new())).await;
        }
        drop(service);
    });
    tokio::spawn(consume(js.clone()));
    let (one, other) = (js.clone(), js);
    tokio::spawn(async { failed("ordered", ordered(one).await.unwrap_err()) });
    tokio::spawn(async { failed("watch", watch(other).await.unwrap_err()) });
    Ok(client.flush().await?)
}

fn line() {
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let urls = std::env::args().nth(1).ok_or("the addresses of the servers")?;
    let (sender, receiver) = (user(&urls).await?, user(&urls).await?);
    receivers(receiver).await?;
    println!("READY");
    let sending = tokio::spawn(publishers(sender));
    tokio::task::spawn_blocking(line).await?;
    STOPPED.store(true, Ordering::Relaxed);
    sending.await??;
    println!("STOPPED");
    tokio::task::spawn_blocking(line).await?;
    std::process::exit(0)
}
