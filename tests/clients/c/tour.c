/* The C client: core, JetStream, key-value; with four arguments over TLS with credentials, through
   a restart of the server: it prints RESTART, and a line on stdin says that the server is back.
   Arguments: url [ca creds creds-of-nobody]. */
#include <nats/nats.h>
#include <stdio.h>

typedef unsigned long long number;

static void out(const char *name, natsStatus s) { printf("%s %s\n", name, natsStatus_GetText(s)); }

static void told(const char *name, natsMsg *msg) {
    if (msg == NULL) return;
    printf("%s %s %.*s\n", name, natsMsg_GetSubject(msg), natsMsg_GetDataLength(msg),
           natsMsg_GetData(msg));
    natsMsg_Destroy(msg);
}

static void respond(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure) {
    natsConnection_Publish(nc, natsMsg_GetReply(msg), natsMsg_GetData(msg),
                           natsMsg_GetDataLength(msg));
    natsMsg_Destroy(msg);
}

static void core(natsConnection *nc) {
    natsSubscription *sub = NULL, *svc = NULL;
    natsMsg *msg = NULL, *reply = NULL, *none = NULL;
    const char *value = "none";
    out("subscribe", natsConnection_SubscribeSync(&sub, nc, "a.*"));
    out("publish", natsConnection_PublishString(nc, "a.b", "one"));
    out("next", natsSubscription_NextMsg(&msg, sub, 2000));
    told("message", msg);
    natsMsg_Create(&msg, "a.c", NULL, "two", 3);
    natsMsgHeader_Add(msg, "K", "v1");
    natsMsgHeader_Add(msg, "K", "v2");
    out("headers", natsConnection_PublishMsg(nc, msg));
    natsMsg_Destroy(msg);
    msg = NULL;
    out("next", natsSubscription_NextMsg(&msg, sub, 2000));
    natsMsgHeader_Get(msg, "K", &value);
    printf("value %s\n", value);
    told("message", msg);
    natsConnection_Subscribe(&svc, nc, "svc", respond, NULL);
    out("request", natsConnection_RequestString(&reply, nc, "svc", "q", 2000));
    printf("reply %.*s\n", natsMsg_GetDataLength(reply), natsMsg_GetData(reply));
    natsMsg_Destroy(reply);
    out("nobody", natsConnection_RequestString(&none, nc, "nobody", "q", 2000));
    out("unsubscribe", natsSubscription_Unsubscribe(sub));
    natsSubscription_Destroy(sub);
}

static void published(jsCtx *js, int count, const char *id) {
    for (int i = 0; i < count; i++) {
        jsPubAck *ack = NULL;
        jsErrCode code = 0;
        jsPubOptions options;
        jsPubOptions_Init(&options);
        options.MsgId = id;
        natsStatus s = js_Publish(&ack, js, "s.a", "hello", 5, &options, &code);
        if (s == NATS_OK)
            printf("ack %s %llu %d\n", ack->Stream, (number)ack->Sequence, ack->Duplicate);
        else
            printf("ack %s %d\n", natsStatus_GetText(s), code);
        jsPubAck_Destroy(ack);
    }
}

static void fetched(jsCtx *js, int count) {
    natsSubscription *sub = NULL;
    natsMsgList list = {0};
    jsErrCode code = 0;
    jsSubOptions options;
    jsSubOptions_Init(&options);
    options.Stream = "S";
    options.Consumer = "C";
    out("pull", js_PullSubscribe(&sub, js, NULL, NULL, NULL, &options, &code));
    out("fetch", natsSubscription_Fetch(&list, sub, count, 5000, &code));
    for (int i = 0; i < list.Count; i++) {
        jsMsgMetaData *meta = NULL;
        natsMsg_GetMetaData(&meta, list.Msgs[i]);
        printf("got %llu of %llu, ", (number)meta->Sequence.Stream, (number)meta->NumPending);
        out("acked", natsMsg_AckSync(list.Msgs[i], NULL, &code));
        jsMsgMetaData_Destroy(meta);
    }
    natsMsgList_Destroy(&list);
    natsSubscription_Unsubscribe(sub);
    natsSubscription_Destroy(sub);
}

static void made(jsCtx *js) {
    jsErrCode code = 0;
    jsStreamConfig stream;
    jsConsumerConfig consumer;
    const char *subjects[] = {"s.>"};
    jsStreamConfig_Init(&stream);
    stream.Name = "S";
    stream.Subjects = subjects;
    stream.SubjectsLen = 1;
    stream.AllowDirect = true;
    out("stream", js_AddStream(NULL, js, &stream, NULL, &code));
    jsConsumerConfig_Init(&consumer);
    consumer.Durable = "C";
    consumer.AckPolicy = js_AckExplicit;
    out("consumer", js_AddConsumer(NULL, js, "S", &consumer, NULL, &code));
}

static void administered(jsCtx *js) {
    jsErrCode code = 0;
    jsStreamInfo *info = NULL;
    jsConsumerInfo *consumer = NULL;
    natsMsg *msg = NULL, *last = NULL;
    jsOptions options;
    jsDirectGetMsgOptions get;
    out("info", js_GetStreamInfo(&info, js, "S", NULL, &code));
    printf("state %llu %llu %lld\n", (number)info->State.Msgs, (number)info->State.LastSeq,
           (long long)info->State.Consumers);
    jsStreamInfo_Destroy(info);
    out("consumer info", js_GetConsumerInfo(&consumer, js, "S", "C", NULL, &code));
    printf("waits %llu floor %llu\n", (number)consumer->NumPending,
           (number)consumer->AckFloor.Stream);
    jsConsumerInfo_Destroy(consumer);
    out("get", js_GetMsg(&msg, js, "S", 1, NULL, &code));
    told("stored", msg);
    jsDirectGetMsgOptions_Init(&get);
    get.LastBySubject = "s.a";
    out("direct", js_DirectGetMsg(&last, js, "S", NULL, &get));
    told("stored", last);
    out("delete message", js_DeleteMsg(js, "S", 1, NULL, &code));
    jsOptions_Init(&options);
    options.Stream.Purge.Keep = 1;
    out("purge", js_PurgeStream(js, "S", &options, &code));
    out("no stream", js_GetStreamInfo(&info, js, "X", NULL, &code));
    printf("code %d\n", code);
    out("delete consumer", js_DeleteConsumer(js, "S", "C", NULL, &code));
    out("delete stream", js_DeleteStream(js, "S", NULL, &code));
}

static void keys(jsCtx *js) {
    kvStore *kv = NULL;
    kvEntry *entry = NULL;
    kvEntryList history = {0};
    kvConfig config;
    uint64_t revision = 0;
    kvConfig_Init(&config);
    config.Bucket = "B";
    config.History = 5;
    out("bucket", js_CreateKeyValue(&kv, js, &config));
    out("put", kvStore_PutString(&revision, kv, "k", "v1"));
    out("update", kvStore_UpdateString(&revision, kv, "k", "v2", revision));
    out("stale", kvStore_UpdateString(NULL, kv, "k", "v3", 1));
    out("create", kvStore_CreateString(NULL, kv, "k", "v3"));
    out("entry", kvStore_Get(&entry, kv, "k"));
    printf("value %s %llu\n", kvEntry_ValueString(entry), (number)kvEntry_Revision(entry));
    kvEntry_Destroy(entry);
    out("delete", kvStore_Delete(kv, "k"));
    out("gone", kvStore_Get(&entry, kv, "k"));
    out("history", kvStore_History(&history, kv, "k", NULL));
    printf("entries %d\n", history.Count);
    kvEntryList_Destroy(&history);
    kvStore_Destroy(kv);
    out("delete bucket", js_DeleteKeyValue(js, "B"));
}

static void until_back(natsConnection *nc) {
    for (int i = 0; i < 1000; i++) {
        natsStatistics *stats = NULL;
        uint64_t reconnects = 0;
        natsStatistics_Create(&stats);
        natsConnection_GetStats(nc, stats);
        natsStatistics_GetCounts(stats, NULL, NULL, NULL, NULL, &reconnects);
        natsStatistics_Destroy(stats);
        if (reconnects && natsConnection_Status(nc) == NATS_CONN_STATUS_CONNECTED) return;
        nats_Sleep(10);
    }
}

static int secured(const char *url, const char *ca, const char *creds, const char *wrong) {
    natsOptions *options = NULL;
    natsConnection *nc = NULL;
    natsSubscription *live = NULL;
    natsMsg *msg = NULL;
    jsCtx *js = NULL;
    char line[16];
    natsOptions_Create(&options);
    natsOptions_SetURL(options, url);
    natsOptions_SetSecure(options, true);
    natsOptions_LoadCATrustedCertificates(options, ca);
    natsOptions_SetUserCredentialsFromFiles(options, wrong, NULL);
    printf("refused %d\n", natsConnection_Connect(&nc, options) != NATS_OK);
    natsOptions_SetUserCredentialsFromFiles(options, creds, NULL);
    natsOptions_SetReconnectWait(options, 20);
    natsOptions_SetMaxReconnect(options, 1000);
    natsStatus s = natsConnection_Connect(&nc, options);
    out("connect", s);
    if (s != NATS_OK) return 1;
    core(nc);
    natsConnection_SubscribeSync(&live, nc, "live.*");
    natsConnection_JetStream(&js, nc, NULL);
    made(js);
    published(js, 3, NULL);
    printf("RESTART\n");
    if (fgets(line, sizeof line, stdin) == NULL) return 1;
    until_back(nc);
    natsConnection_PublishString(nc, "live.x", "again");
    out("live", natsSubscription_NextMsg(&msg, live, 5000));
    told("message", msg);
    published(js, 3, NULL);
    fetched(js, 6);
    out("drain", natsConnection_DrainTimeout(nc, 5000));
    natsConnection_Destroy(nc);
    return 0;
}

int main(int argc, char **argv) {
    natsConnection *nc = NULL;
    jsCtx *js = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 5) return secured(argv[1], argv[2], argv[3], argv[4]);
    if (argc != 2 || natsConnection_ConnectTo(&nc, argv[1]) != NATS_OK) return 1;
    core(nc);
    natsConnection_JetStream(&js, nc, NULL);
    made(js);
    published(js, 3, NULL);
    published(js, 2, "once");
    fetched(js, 4);
    administered(js);
    keys(js);
    natsConnection_Destroy(nc);
    return 0;
}
