package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

func out(k string, v any) { b, _ := json.Marshal(v); fmt.Println(k, string(b)) }
func step(name string, f func() (any, error)) {
	v, err := f()
	if err != nil {
		out(name, "ERR "+err.Error())
		return
	}
	out(name, v)
}

func main() {
	if len(os.Args) == 5 {
		secured(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
		return
	}
	nc, err := nats.Connect(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	step("publish", func() (any, error) {
		sub, _ := nc.SubscribeSync("a.*")
		nc.Publish("a.b", []byte("one"))
		m := nats.NewMsg("a.c")
		m.Header.Add("K", "v1")
		m.Header.Add("K", "v2")
		nc.PublishMsg(m)
		got := []any{}
		for i := 0; i < 2; i++ {
			m, err := sub.NextMsg(time.Second)
			if err != nil {
				return nil, err
			}
			got = append(got, m.Subject, string(m.Data), m.Header)
		}
		return got, sub.Unsubscribe()
	})
	step("request", func() (any, error) {
		nc.Subscribe("svc", func(m *nats.Msg) { m.Respond(append([]byte("re:"), m.Data...)) })
		m, err := nc.Request("svc", []byte("q"), time.Second)
		if err != nil {
			return nil, err
		}
		return string(m.Data), nil
	})
	step("noResponders", func() (any, error) { _, err := nc.Request("nobody", nil, time.Second); return nil, err })
	js, _ := jetstream.New(nc)
	step("stream", func() (any, error) {
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true, AllowMsgTTL: true, AllowAtomicPublish: true})
		if err != nil {
			return nil, err
		}
		return s.CachedInfo().Config.Name, nil
	})
	step("jspub", func() (any, error) { a, err := js.Publish(ctx, "s.a", []byte("x")); if err != nil { return nil, err }; return []any{a.Stream, a.Sequence}, nil })
	step("jspubid", func() (any, error) {
		a, err := js.Publish(ctx, "s.a", []byte("x"), jetstream.WithMsgID("1"))
		if err != nil { return nil, err }
		b, err := js.Publish(ctx, "s.a", []byte("x"), jetstream.WithMsgID("1"))
		if err != nil { return nil, err }
		return []any{a.Sequence, b.Sequence, b.Duplicate}, nil
	})
	step("jspubexp", func() (any, error) { _, err := js.Publish(ctx, "s.a", []byte("x"), jetstream.WithExpectLastSequence(99)); return nil, err })
	step("jspubttl", func() (any, error) { a, err := js.Publish(ctx, "s.t", []byte("x"), jetstream.WithMsgTTL(time.Hour)); if err != nil { return nil, err }; return a.Sequence, nil })
	step("async", func() (any, error) {
		for i := 0; i < 1000; i++ {
			if _, err := js.PublishAsync("s.m", []byte("m")); err != nil { return nil, err }
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-time.After(5 * time.Second):
			return nil, errors.New("timeout")
		}
		return js.PublishAsyncPending(), nil
	})
	step("nostream", func() (any, error) { _, err := js.Publish(ctx, "zz", nil); return nil, err })
	s, _ := js.Stream(ctx, "S")
	step("info", func() (any, error) { i, err := s.Info(ctx, jetstream.WithSubjectFilter(">")); if err != nil { return nil, err }; return []any{i.State.Msgs, i.State.Subjects}, nil })
	step("getmsg", func() (any, error) { m, err := s.GetMsg(ctx, 2); if err != nil { return nil, err }; return []any{m.Subject, m.Sequence, m.Header.Get("Nats-TTL")}, nil })
	step("getlast", func() (any, error) { m, err := s.GetLastMsgForSubject(ctx, "s.t"); if err != nil { return nil, err }; return []any{m.Subject, m.Sequence, m.Header.Get("Nats-TTL")}, nil })
	step("getnone", func() (any, error) { _, err := s.GetMsg(ctx, 99999); return nil, err })
	c, err := s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, Metadata: map[string]string{"a": "b"}, BackOff: []time.Duration{time.Second, 2 * time.Second}, MaxDeliver: 5})
	step("consumer", func() (any, error) { if err != nil { return nil, err }; i := c.CachedInfo(); return []any{i.NumPending, i.Config.AckWait, i.Config.BackOff}, nil })
	step("fetch", func() (any, error) {
		b, err := c.Fetch(5, jetstream.FetchMaxWait(time.Second))
		if err != nil { return nil, err }
		got := []any{}
		for m := range b.Messages() { md, _ := m.Metadata(); got = append(got, md.Sequence, md.NumPending); m.DoubleAck(ctx) }
		return got, b.Error()
	})
	step("fetchbytes", func() (any, error) {
		b, err := c.FetchBytes(500, jetstream.FetchMaxWait(time.Second))
		if err != nil { return nil, err }
		n := 0
		for m := range b.Messages() { n++; m.Ack() }
		return n > 1, b.Error()
	})
	step("nowait", func() (any, error) {
		b, err := c.FetchNoWait(5)
		if err != nil { return nil, err }
		n := 0
		for m := range b.Messages() { n++; m.NakWithDelay(10*time.Millisecond) }
		return n, b.Error()
	})
	step("consume", func() (any, error) {
		done := make(chan int)
		n := 0
		cc, err := c.Consume(func(m jetstream.Msg) { n++; m.Ack(); if n == 900 { done <- n } })
		if err != nil { return nil, err }
		// Until it is closed it goes on taking messages, and the next step's would be among them.
		defer func() { cc.Stop(); <-cc.Closed() }()
		select { case n := <-done: return n, nil; case <-time.After(5 * time.Second): return nil, errors.New("timeout") }
	})
	step("messages", func() (any, error) {
		js.Publish(ctx, "s.z", []byte("z"))
		it, err := c.Messages(jetstream.PullMaxMessages(10))
		if err != nil { return nil, err }
		defer it.Stop()
		for { m, err := it.Next(); if err != nil { return nil, err }; m.Ack(); if m.Subject() == "s.z" { return string(m.Data()), nil } }
	})
	step("ordered", func() (any, error) {
		oc, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"s.m"}})
		if err != nil { return nil, err }
		n := 0
		it, err := oc.Messages()
		if err != nil { return nil, err }
		defer it.Stop()
		for { m, err := it.Next(); if err != nil { return nil, err }; n++; md, _ := m.Metadata(); if md.NumPending == 0 { return n, nil } }
	})
	step("list", func() (any, error) {
		names := []string{}
		for n := range js.StreamNames(ctx).Name() { names = append(names, n) }
		for n := range s.ListConsumers(ctx).Info() { if n.Name == "C" { names = append(names, n.Name) } }
		sort.Strings(names)
		return names, nil
	})
	step("push", func() (any, error) {
		pc, err := s.CreateOrUpdatePushConsumer(ctx, jetstream.ConsumerConfig{Name: "P", DeliverSubject: nc.NewInbox(), AckPolicy: jetstream.AckNonePolicy, FlowControl: true, IdleHeartbeat: time.Second})
		if err != nil { return nil, err }
		ch := make(chan bool, 1)
		n := 0
		cc, err := pc.Consume(func(m jetstream.Msg) { n++; md, _ := m.Metadata(); if md.NumPending == 0 { ch <- true } })
		if err != nil { return nil, err }
		defer cc.Stop()
		select { case <-ch: return n, nil; case <-time.After(5 * time.Second): return nil, errors.New("timeout") }
	})
	step("prio", func() (any, error) {
		pc, err := s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "PR", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}, PinnedTTL: time.Second, AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil { return nil, err }
		b, err := pc.Fetch(3, jetstream.FetchMaxWait(time.Second), jetstream.FetchPriorityGroup("g"))
		if err != nil { return nil, err }
		n := 0
		for m := range b.Messages() { n++; m.Ack() }
		return n, b.Error()
	})
	step("pause", func() (any, error) { r, err := s.PauseConsumer(ctx, "C", time.Now().Add(time.Hour)); if err != nil { return nil, err }; q, err := s.ResumeConsumer(ctx, "C"); if err != nil { return nil, err }; return []any{r.Paused, q.Paused}, nil })
	step("purge", func() (any, error) { return nil, s.Purge(ctx, jetstream.WithPurgeSubject("s.m"), jetstream.WithPurgeKeep(10)) })
	step("acct", func() (any, error) { a, err := js.AccountInfo(ctx); if err != nil { return nil, err }; return []any{a.Streams, a.Tier.Consumers}, nil })
	step("kv", func() (any, error) {
		kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "B", History: 5, LimitMarkerTTL: time.Minute})
		if err != nil { return nil, err }
		r := []any{}
		n, err := kv.Put(ctx, "k", []byte("1"))
		r = append(r, n, err)
		n, err = kv.Update(ctx, "k", []byte("2"), 1)
		r = append(r, n, err)
		_, err = kv.Create(ctx, "k", []byte("2"))
		r = append(r, fmt.Sprint(err))
		n, err = kv.Create(ctx, "t", []byte("2"), jetstream.KeyTTL(time.Hour))
		r = append(r, n, fmt.Sprint(err))
		e, err := kv.Get(ctx, "k")
		if err != nil { return nil, err }
		r = append(r, string(e.Value()), e.Revision())
		h, err := kv.History(ctx, "k")
		r = append(r, len(h), fmt.Sprint(err))
		kv.Delete(ctx, "k")
		_, err = kv.Get(ctx, "k")
		r = append(r, fmt.Sprint(err))
		w, err := kv.WatchAll(ctx)
		if err != nil { return nil, err }
		for e := range w.Updates() { if e == nil { break }; r = append(r, e.Key(), e.Operation().String()) }
		w.Stop()
		ks, err := kv.Keys(ctx)
		r = append(r, ks, fmt.Sprint(err))
		err = kv.PurgeDeletes(ctx)
		st, _ := kv.Status(ctx)
		r = append(r, fmt.Sprint(err), st.Values(), st.History())
		return r, nil
	})
	step("obj", func() (any, error) {
		o, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "O"})
		if err != nil { return nil, err }
		i, err := o.PutBytes(ctx, "f", bytes.Repeat([]byte("x"), 300000))
		if err != nil { return nil, err }
		b, err := o.GetBytes(ctx, "f")
		if err != nil { return nil, err }
		l, err := o.List(ctx)
		if err != nil { return nil, err }
		err = o.Delete(ctx, "f")
		_, e2 := o.GetBytes(ctx, "f")
		return []any{i.Size, i.Chunks, len(b), len(l), fmt.Sprint(err), fmt.Sprint(e2)}, o.Seal(ctx)
	})
	step("batch", func() (any, error) {
		r := []any{}
		for i := 1; i <= 3; i++ {
			m := nats.NewMsg("s.b"); m.Header.Set("Nats-Batch-Id", "b1"); m.Header.Set("Nats-Batch-Sequence", fmt.Sprint(i))
			if i == 3 { m.Header.Set("Nats-Batch-Commit", "1") }
			a, err := nc.RequestMsg(m, time.Second)
			if err != nil { return nil, err }
			r = append(r, string(a.Data))
		}
		return r, nil
	})
	step("micro", func() (any, error) {
		sv, err := micro.AddService(nc, micro.Config{Name: "calc", Version: "1.0.0", Endpoint: &micro.EndpointConfig{Subject: "sum", Handler: micro.HandlerFunc(func(r micro.Request) { r.Respond([]byte("3")) })}})
		if err != nil { return nil, err }
		m, err := nc.Request("sum", nil, time.Second)
		if err != nil { return nil, err }
		p, err := nc.Request("$SRV.PING.calc", nil, time.Second)
		if err != nil { return nil, err }
		return []any{string(m.Data), len(p.Data) > 0, sv.Stats().Endpoints[0].NumRequests}, sv.Stop()
	})
	step("queue", func() (any, error) {
		ch := make(chan *nats.Msg, 100)
		for i := 0; i < 3; i++ { nc.ChanQueueSubscribe("q.x", "g", ch) }
		for i := 0; i < 30; i++ { nc.Publish("q.x", nil) }
		nc.Flush()
		return len(ch), nil
	})
	step("autounsub", func() (any, error) {
		sub, _ := nc.SubscribeSync("au"); sub.AutoUnsubscribe(2)
		for i := 0; i < 5; i++ { nc.Publish("au", nil) }
		nc.Flush()
		n := 0
		for { if _, err := sub.NextMsg(100 * time.Millisecond); err != nil { return []any{n, err.Error()}, nil }; n++ }
	})
	step("legacy", func() (any, error) {
		l, _ := nc.JetStream()
		sub, err := l.SubscribeSync("s.z", nats.DeliverAll(), nats.OrderedConsumer())
		if err != nil { return nil, err }
		m, err := sub.NextMsg(time.Second)
		if err != nil { return nil, err }
		ps, err := l.PullSubscribe("s.z", "LG")
		if err != nil { return nil, err }
		ms, err := ps.Fetch(1)
		if err != nil { return nil, err }
		return []any{string(m.Data), len(ms)}, ms[0].AckSync()
	})
	step("rtt", func() (any, error) { r, err := nc.RTT(); return r > 0, err })
	step("delete", func() (any, error) { return nil, js.DeleteStream(ctx, "S") })
	step("drain", func() (any, error) { return nil, nc.Drain() })
}
