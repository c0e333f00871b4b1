// A tour with old releases of the Go client: its first with JetStream, and with buckets of keys
// and objects where it has them (go build -modfile=buckets.mod -tags buckets).
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/nats-io/nats.go"
)

func out(k string, v interface{}) { b, _ := json.Marshal(v); fmt.Println(k, string(b)) }
func step(name string, f func() (interface{}, error)) {
	v, err := f()
	if err != nil {
		out(name, "ERR "+err.Error())
		return
	}
	out(name, v)
}

type L []interface{}

func main() {
	nc, err := nats.Connect(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	step("core", func() (interface{}, error) {
		sub, _ := nc.SubscribeSync("a.*")
		nc.Publish("a.b", []byte("one"))
		m := nats.NewMsg("a.c")
		m.Header.Add("K", "v1")
		m.Header.Add("K", "v2")
		nc.PublishMsg(m)
		got := L{}
		for i := 0; i < 2; i++ {
			m, err := sub.NextMsg(2 * time.Second)
			if err != nil {
				return nil, err
			}
			got = append(got, m.Subject, string(m.Data), m.Header)
		}
		return got, sub.Unsubscribe()
	})
	step("request", func() (interface{}, error) {
		nc.Subscribe("svc", func(m *nats.Msg) { m.Respond(append([]byte("re:"), m.Data...)) })
		m, err := nc.Request("svc", []byte("q"), 2*time.Second)
		if err != nil {
			return nil, err
		}
		return string(m.Data), nil
	})
	step("nobody", func() (interface{}, error) { m, err := nc.Request("nobody", nil, time.Second); return m == nil, err })
	js, err := nc.JetStream()
	if err != nil {
		out("js", err.Error())
		return
	}
	step("account", func() (interface{}, error) {
		a, err := js.AccountInfo()
		if err != nil {
			return nil, err
		}
		return L{a.Memory, a.Store, a.Streams, a.Consumers, a.Limits}, nil
	})
	cfg := &nats.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxMsgs: 1000, MaxAge: time.Hour, Discard: nats.DiscardOld, Duplicates: time.Minute}
	state := func(i *nats.StreamInfo) L {
		return L{i.Config, i.State.Msgs, i.State.Bytes, i.State.FirstSeq, i.State.LastSeq, i.State.Consumers, i.Mirror, len(i.Sources)}
	}
	step("add", func() (interface{}, error) {
		i, err := js.AddStream(cfg)
		if err != nil {
			return nil, err
		}
		return state(i), nil
	})
	step("again", func() (interface{}, error) { _, err := js.AddStream(cfg); return nil, err })
	step("update", func() (interface{}, error) {
		c := *cfg
		c.MaxMsgs = 2000
		i, err := js.UpdateStream(&c)
		if err != nil {
			return nil, err
		}
		return state(i), nil
	})
	step("pub", func() (interface{}, error) {
		r := L{}
		for i := 0; i < 30; i++ {
			a, err := js.Publish(fmt.Sprintf("s.%d", i%3), []byte(fmt.Sprint("d", i)), nats.MsgId(fmt.Sprint(i%29)))
			if err != nil {
				return nil, err
			}
			r = append(r, a.Stream, a.Sequence, a.Duplicate)
		}
		for _, o := range [][]nats.PubOpt{{nats.ExpectLastSequence(1)}, {nats.ExpectStream("X")}, {nats.ExpectLastMsgId("zz")}} {
			_, err := js.Publish("s.x", nil, o...)
			r = append(r, fmt.Sprint(err))
		}
		_, err := js.Publish("none", nil)
		return append(r, fmt.Sprint(err)), nil
	})
	step("async", func() (interface{}, error) {
		fs := []nats.PubAckFuture{}
		for i := 0; i < 200; i++ {
			f, err := js.PublishAsync("s.async", []byte(fmt.Sprint(i)))
			if err != nil {
				return nil, err
			}
			fs = append(fs, f)
		}
		<-js.PublishAsyncComplete()
		last := uint64(0)
		for _, f := range fs {
			select {
			case a := <-f.Ok():
				if a.Sequence <= last {
					return "order", nil
				}
				last = a.Sequence
			case e := <-f.Err():
				return nil, e
			}
		}
		return last, nil
	})
	meta := func(m *nats.Msg) L {
		d, err := m.Metadata()
		if err != nil {
			return L{err.Error()}
		}
		return L{m.Subject, string(m.Data), d.Sequence, d.NumDelivered, d.NumPending, d.Stream}
	}
	step("pull", func() (interface{}, error) {
		s, err := js.PullSubscribe("s.1", "P")
		if err != nil {
			return nil, err
		}
		r := L{}
		for _, n := range []int{1, 4, 20} {
			ms, err := s.Fetch(n, nats.MaxWait(700*time.Millisecond))
			r = append(r, fmt.Sprint(err))
			for _, m := range ms {
				r = append(r, meta(m))
				if err := m.AckSync(); err != nil {
					r = append(r, err.Error())
				}
			}
		}
		_, err = s.Fetch(1, nats.MaxWait(300*time.Millisecond))
		r = append(r, fmt.Sprint(err))
		ci, err := s.ConsumerInfo()
		if err != nil {
			return nil, err
		}
		return append(r, ci.NumPending, ci.NumAckPending, ci.NumRedelivered, ci.Delivered.Consumer, ci.AckFloor.Stream), nil
	})
	step("push", func() (interface{}, error) {
		s, err := js.SubscribeSync("s.2", nats.Durable("D"), nats.ManualAck(), nats.DeliverAll(), nats.AckWait(time.Second), nats.MaxDeliver(3))
		if err != nil {
			return nil, err
		}
		r := L{}
		for i := 0; i < 5; i++ {
			m, err := s.NextMsg(2 * time.Second)
			if err != nil {
				return nil, err
			}
			r = append(r, meta(m))
			switch i {
			case 0:
				m.AckSync()
			case 1:
				m.Term()
			case 2:
				m.InProgress()
				m.Ack()
			}
		}
		return r, s.Drain()
	})
	step("queue", func() (interface{}, error) {
		ch := make(chan *nats.Msg, 500)
		a, err := js.QueueSubscribe("s.0", "Q", func(m *nats.Msg) { ch <- m }, nats.DeliverAll())
		if err != nil {
			return nil, err
		}
		b, err := js.QueueSubscribe("s.0", "Q", func(m *nats.Msg) { ch <- m })
		if err != nil {
			return nil, err
		}
		r := []string{}
		for i := 0; i < 10; i++ {
			select {
			case m := <-ch:
				r = append(r, string(m.Data))
				m.Ack()
			case <-time.After(2 * time.Second):
				return r, nil
			}
		}
		sort.Strings(r)
		a.Unsubscribe()
		return r, b.Unsubscribe()
	})
	step("last", func() (interface{}, error) {
		s, err := js.SubscribeSync("s.async", nats.DeliverLast(), nats.AckNone())
		if err != nil {
			return nil, err
		}
		m, err := s.NextMsg(2 * time.Second)
		if err != nil {
			return nil, err
		}
		return meta(m), s.Unsubscribe()
	})
	more(nc, js, meta)
	step("admin", func() (interface{}, error) {
		r := L{}
		ci, err := js.ConsumerInfo("S", "P")
		if err != nil {
			return nil, err
		}
		r = append(r, ci.Name, ci.NumPending)
		_, err = js.ConsumerInfo("S", "nope")
		r = append(r, fmt.Sprint(err))
		_, err = js.AddConsumer("S", &nats.ConsumerConfig{Durable: "N", AckPolicy: nats.AckExplicitPolicy, FilterSubject: "s.1"})
		r = append(r, fmt.Sprint(err))
		names := []string{}
		for c := range js.ConsumersInfo("S") {
			if len(c.Name) < 6 {
				names = append(names, c.Name)
			}
		}
		sort.Strings(names)
		r = append(r, names, fmt.Sprint(js.DeleteConsumer("S", "N")), fmt.Sprint(js.DeleteConsumer("S", "N")))
		r = append(r, fmt.Sprint(js.DeleteMsg("S", 2)), fmt.Sprint(js.DeleteMsg("S", 2)), fmt.Sprint(js.PurgeStream("S")))
		i, err := js.StreamInfo("S")
		if err != nil {
			return nil, err
		}
		r = append(r, i.State.Msgs, i.State.FirstSeq, i.State.LastSeq, fmt.Sprint(js.DeleteStream("S")), fmt.Sprint(js.DeleteStream("S")))
		return r, nil
	})
	fmt.Println("drain", nc.Drain())
}
