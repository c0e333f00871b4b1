//go:build buckets

package main

import (
	"bytes"
	"fmt"
	"io/ioutil"
	"sort"
	"time"

	"github.com/nats-io/nats.go"
)

func more(nc *nats.Conn, js nats.JetStreamContext, meta func(*nats.Msg) L) {
	step("ordered", func() (interface{}, error) {
		s, err := js.SubscribeSync("s.async", nats.OrderedConsumer())
		if err != nil {
			return nil, err
		}
		r := L{}
		for i := 0; i < 200; i++ {
			m, err := s.NextMsg(2 * time.Second)
			if err != nil {
				return nil, err
			}
			r = append(r, string(m.Data))
		}
		return r, s.Unsubscribe()
	})
	step("getmsg", func() (interface{}, error) {
		m, err := js.GetMsg("S", 3)
		if err != nil {
			return nil, err
		}
		_, e2 := js.GetMsg("S", 99999)
		return L{m.Subject, string(m.Data), m.Sequence, m.Header, fmt.Sprint(e2)}, nil
	})
	step("kv", func() (interface{}, error) {
		kv, err := js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "B", History: 5, TTL: time.Hour})
		if err != nil {
			return nil, err
		}
		r := L{}
		add := func(v interface{}, err error) { r = append(r, v, fmt.Sprint(err)) }
		add(kv.Put("a", []byte("1")))
		add(kv.PutString("a", "2"))
		add(kv.Create("a", []byte("3")))
		add(kv.Create("b", []byte("3")))
		add(kv.Update("a", []byte("4"), 2))
		add(kv.Update("a", []byte("5"), 2))
		e, err := kv.Get("a")
		if err != nil {
			return r, err
		}
		r = append(r, e.Key(), string(e.Value()), e.Revision(), e.Operation().String())
		r = append(r, fmt.Sprint(kv.Delete("b")))
		_, err = kv.Get("b")
		r = append(r, fmt.Sprint(err))
		add(kv.Put("c.d", []byte("x")))
		ks, err := kv.Keys()
		sort.Strings(ks)
		add(ks, err)
		h, err := kv.History("a")
		for _, e := range h {
			r = append(r, e.Revision(), string(e.Value()), e.Delta())
		}
		w, err := kv.WatchAll()
		if err != nil {
			return r, err
		}
		for e := range w.Updates() {
			if e == nil {
				break
			}
			r = append(r, e.Key(), e.Revision(), e.Operation().String())
		}
		w.Stop()
		r = append(r, fmt.Sprint(kv.Purge("a")))
		st, err := kv.Status()
		if err != nil {
			return r, err
		}
		r = append(r, st.Bucket(), st.Values(), st.History(), st.TTL().String())
		return append(r, fmt.Sprint(js.DeleteKeyValue("B"))), nil
	})
	step("obj", func() (interface{}, error) {
		o, err := js.CreateObjectStore(&nats.ObjectStoreConfig{Bucket: "O"})
		if err != nil {
			return nil, err
		}
		r := L{}
		i, err := o.Put(&nats.ObjectMeta{Name: "x"}, bytes.NewReader(bytes.Repeat([]byte("q"), 300000)))
		if err != nil {
			return r, err
		}
		r = append(r, i.Name, i.Size, i.Chunks, i.Digest)
		g, err := o.Get("x")
		if err != nil {
			return r, err
		}
		b, err := ioutil.ReadAll(g)
		r = append(r, len(b), fmt.Sprint(err))
		l, err := o.List()
		r = append(r, len(l), fmt.Sprint(err), fmt.Sprint(o.Delete("x")), fmt.Sprint(js.DeleteObjectStore("O")))
		return r, nil
	})
}
