package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// secured goes over TLS with credentials, through a restart of the server: it prints RESTART, and
// a line on stdin says that the server is back. Arguments: url, ca, creds, creds of nobody.
func secured(url, ca, creds, wrong string) {
	_, err := nats.Connect(url, nats.RootCAs(ca), nats.UserCredentials(wrong))
	out("wrong", err != nil)
	_, err = nats.Connect(url, nats.UserCredentials(creds))
	out("untrusted", err != nil)
	refused := make(chan error, 8)
	back := make(chan bool, 8)
	nc, err := nats.Connect(url, nats.RootCAs(ca), nats.UserCredentials(creds),
		nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }),
		nats.ReconnectHandler(func(*nats.Conn) { back <- true }))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	out("connected", []any{nc.HeadersSupported(), nc.MaxPayload(), nc.TLSRequired()})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	nc.Subscribe("svc", func(m *nats.Msg) { m.Respond(append([]byte("re:"), m.Data...)) })
	live, _ := nc.SubscribeSync("live.*")
	js, _ := jetstream.New(nc)
	step("request", func() (any, error) {
		m, err := nc.Request("svc", []byte("q"), time.Second)
		if err != nil {
			return nil, err
		}
		return string(m.Data), nil
	})
	step("denied", func() (any, error) {
		nc.Publish("denied.x", nil)
		nc.Flush()
		select {
		case err := <-refused:
			return err.Error(), nil
		case <-time.After(2 * time.Second):
			return nil, nats.ErrTimeout
		}
	})
	publish := func() (any, error) {
		seen := []uint64{}
		for range 3 {
			a, err := js.Publish(ctx, "s.a", make([]byte, 100_000))
			if err != nil {
				return nil, err
			}
			seen = append(seen, a.Sequence)
		}
		return seen, nil
	}
	step("stream", func() (any, error) {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
		if err != nil {
			return nil, err
		}
		_, err = js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "C"})
		return nil, err
	})
	step("published", publish)
	fmt.Println("RESTART")
	bufio.NewReader(os.Stdin).ReadString('\n')
	<-back
	step("live", func() (any, error) {
		nc.Publish("live.x", []byte("again"))
		m, err := live.NextMsg(5 * time.Second)
		if err != nil {
			return nil, err
		}
		return string(m.Data), nil
	})
	step("more", publish)
	step("fetched", func() (any, error) {
		c, err := js.Consumer(ctx, "S", "C")
		if err != nil {
			return nil, err
		}
		batch, err := c.Fetch(6, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return nil, err
		}
		seen := []any{}
		for m := range batch.Messages() {
			meta, _ := m.Metadata()
			seen = append(seen, meta.Sequence.Stream, len(m.Data()), m.DoubleAck(ctx))
		}
		return seen, batch.Error()
	})
	nc.Drain()
	for !nc.IsClosed() {
		time.Sleep(5 * time.Millisecond)
	}
	out("drained", nc.IsClosed())
}
