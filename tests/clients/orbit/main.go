// A tour of Orbit, the extensions of the Go client: batches, counters, codecs of key-value stores,
// requests with many answers, groups of consumers. It prints the same with every server.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/counters"
	"github.com/synadia-io/orbit.go/jetstreamext"
	"github.com/synadia-io/orbit.go/kvcodec"
	"github.com/synadia-io/orbit.go/natsext"
	"github.com/synadia-io/orbit.go/pcgroups"
)

func step(name string, f func() (any, error)) {
	found, err := f()
	if err != nil {
		found = "ERR " + err.Error()
	}
	text, _ := json.Marshal(found)
	fmt.Println(name, string(text))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func stream(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig) {
	config.Storage = jetstream.MemoryStorage
	_, err := js.CreateStream(ctx, config)
	must(err)
}

func ack(found *jetstreamext.BatchAck) any {
	return []any{found.Stream, found.Sequence, found.BatchSize, found.BatchID != ""}
}

func atomicBatches(ctx context.Context, js jetstream.JetStream) {
	stream(ctx, js, jetstream.StreamConfig{
		Name: "ATOMIC", Subjects: []string{"atomic.>"}, AllowAtomicPublish: true, AllowMsgTTL: true,
	})
	publish := func(options ...jetstreamext.BatchMsgOpt) (any, error) {
		batch, err := jetstreamext.NewBatchPublisher(js)
		if err != nil {
			return nil, err
		}
		for number := range 5 {
			subject := fmt.Sprintf("atomic.%d", number)
			if err := batch.Add(subject, []byte("x"), options...); err != nil {
				return nil, err
			}
			options = nil
		}
		found, err := batch.Commit(ctx, "atomic.last", []byte("y"))
		if err != nil {
			return nil, err
		}
		return ack(found), nil
	}
	step("atomic", func() (any, error) { return publish() })
	step("atomic ttl", func() (any, error) { return publish(jetstreamext.WithBatchMsgTTL(time.Hour)) })
	step("atomic expected", func() (any, error) {
		return publish(jetstreamext.WithBatchExpectLastSequence(12))
	})
	step("atomic unexpected", func() (any, error) {
		return publish(jetstreamext.WithBatchExpectLastSequence(3))
	})
	step("atomic other stream", func() (any, error) {
		return publish(jetstreamext.WithBatchExpectStream("OTHER"))
	})
	step("atomic messages", func() (any, error) {
		found, err := jetstreamext.PublishMsgBatch(ctx, js, []*nats.Msg{
			nats.NewMsg("atomic.a"), nats.NewMsg("atomic.b"),
		})
		if err != nil {
			return nil, err
		}
		return ack(found), nil
	})
	step("atomic state", func() (any, error) { return state(ctx, js, "ATOMIC") })
}

func state(ctx context.Context, js jetstream.JetStream, name string) (any, error) {
	held, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	info := held.CachedInfo().State
	return []any{info.Msgs, info.FirstSeq, info.LastSeq, info.NumSubjects}, nil
}

func fastBatches(ctx context.Context, js jetstream.JetStream) {
	stream(ctx, js, jetstream.StreamConfig{
		Name: "FAST", Subjects: []string{"fast.>"}, AllowBatchPublish: true,
	})
	step("fast", func() (any, error) {
		batch, err := jetstreamext.NewFastPublisher(js)
		if err != nil {
			return nil, err
		}
		for number := range 2000 {
			if _, err := batch.Add(fmt.Sprintf("fast.%d", number%10), []byte("x")); err != nil {
				return nil, err
			}
		}
		found, err := batch.Commit(ctx, "fast.last", []byte("y"))
		if err != nil {
			return nil, err
		}
		return ack(found), nil
	})
	step("fast closed", func() (any, error) {
		batch, err := jetstreamext.NewFastPublisher(js)
		if err != nil {
			return nil, err
		}
		if _, err := batch.Add("fast.a", []byte("x")); err != nil {
			return nil, err
		}
		found, err := batch.Close(ctx)
		if err != nil {
			return nil, err
		}
		return ack(found), nil
	})
	step("fast state", func() (any, error) { return state(ctx, js, "FAST") })
}

func reads(ctx context.Context, js jetstream.JetStream) {
	stream(ctx, js, jetstream.StreamConfig{
		Name: "READ", Subjects: []string{"read.>"}, AllowDirect: true,
	})
	for number := range 30 {
		_, err := js.Publish(ctx, fmt.Sprintf("read.%d", number%3), fmt.Append(nil, number))
		must(err)
	}
	several := func(batch int, options ...jetstreamext.GetBatchOpt) func() (any, error) {
		return func() (any, error) {
			all, err := jetstreamext.GetBatch(ctx, js, "READ", batch, options...)
			if err != nil {
				return nil, err
			}
			found := []any{}
			for one, err := range all {
				if err != nil {
					return append(found, err.Error()), nil
				}
				found = append(found, []any{one.Subject, one.Sequence, string(one.Data)})
			}
			return found, nil
		}
	}
	step("read", several(5))
	step("read from", several(5, jetstreamext.GetBatchSeq(28)))
	step("read subject", several(4, jetstreamext.GetBatchSubject("read.1"), jetstreamext.GetBatchSeq(7)))
	step("read bytes", several(20, jetstreamext.GetBatchMaxBytes(30)))
	step("read nothing", several(5, jetstreamext.GetBatchSubject("none")))
	last := func(subjects []string, options ...jetstreamext.GetLastForOpt) func() (any, error) {
		return func() (any, error) {
			all, err := jetstreamext.GetLastMsgsFor(ctx, js, "READ", subjects, options...)
			if err != nil {
				return nil, err
			}
			found := []any{}
			for one, err := range all {
				if err != nil {
					return append(found, err.Error()), nil
				}
				found = append(found, []any{one.Subject, one.Sequence})
			}
			return found, nil
		}
	}
	step("last", last([]string{"read.*"}))
	step("last up to", last([]string{"read.0", "read.1"}, jetstreamext.GetLastMsgsUpToSeq(10)))
	step("last few", last([]string{"read.>"}, jetstreamext.GetLastMsgsBatchSize(2)))
	step("last none", last([]string{"none"}))
}

func counted(ctx context.Context, js jetstream.JetStream) {
	stream(ctx, js, jetstream.StreamConfig{
		Name: "COUNT", Subjects: []string{"count.>"}, AllowMsgCounter: true, AllowDirect: true,
	})
	counter, err := counters.GetCounter(ctx, js, "COUNT")
	must(err)
	for _, by := range []int{5, -7, 0, 1 << 40} {
		step("count", func() (any, error) { return counter.AddInt(ctx, "count.a", by) })
	}
	step("count b", func() (any, error) { return counter.AddInt(ctx, "count.b", 2) })
	step("count load", func() (any, error) { return counter.Load(ctx, "count.a") })
	step("count none", func() (any, error) { return counter.Load(ctx, "count.z") })
	step("count get", func() (any, error) {
		entry, err := counter.Get(ctx, "count.a")
		if err != nil {
			return nil, err
		}
		return []any{entry.Subject, entry.Value, entry.Sources, entry.Incr}, nil
	})
	step("count many", func() (any, error) {
		found := []any{}
		for entry, err := range counter.GetMultiple(ctx, []string{"count.*"}) {
			if err != nil {
				return nil, err
			}
			found = append(found, []any{entry.Subject, entry.Value})
		}
		return found, nil
	})
}

func coded(ctx context.Context, js jetstream.JetStream) {
	plain, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: "CODED", History: 3, Storage: jetstream.MemoryStorage,
	})
	must(err)
	codec := kvcodec.Base64Codec()
	store := kvcodec.New(plain, codec, codec)
	step("coded put", func() (any, error) { return store.Put(ctx, "a key/é", []byte("value")) })
	step("coded put", func() (any, error) { return store.PutString(ctx, "other.key", "2") })
	step("coded get", func() (any, error) {
		entry, err := store.Get(ctx, "a key/é")
		if err != nil {
			return nil, err
		}
		return []any{entry.Key(), string(entry.Value()), entry.Revision()}, nil
	})
	step("coded update", func() (any, error) { return store.Update(ctx, "other.key", []byte("3"), 2) })
	step("coded stale", func() (any, error) { return store.Update(ctx, "other.key", []byte("4"), 2) })
	step("coded delete", func() (any, error) { return nil, store.Delete(ctx, "a key/é") })
	step("coded keys", func() (any, error) { return store.Keys(ctx) })
}

func many(ctx context.Context, nc *nats.Conn) {
	for number := range 3 {
		_, err := nc.Subscribe("many", func(msg *nats.Msg) { _ = msg.Respond(fmt.Append(nil, number)) })
		must(err)
	}
	must(nc.Flush())
	answers := func(options ...natsext.RequestManyOpt) func() (any, error) {
		return func() (any, error) {
			all, err := natsext.RequestMany(ctx, nc, "many", nil, options...)
			if err != nil {
				return nil, err
			}
			count := 0
			for _, err := range all {
				if err != nil {
					return []any{count, err.Error()}, nil
				}
				count++
			}
			return count, nil
		}
	}
	step("many", answers(natsext.RequestManyMaxMessages(3)))
	step("many two", answers(natsext.RequestManyMaxMessages(2)))
	step("nobody", func() (any, error) {
		all, err := natsext.RequestMany(ctx, nc, "nobody", nil)
		if err != nil {
			return nil, err
		}
		for _, err := range all {
			return nil, err
		}
		return "silence", nil
	})
}

func groups(ctx context.Context, js jetstream.JetStream) {
	stream(ctx, js, jetstream.StreamConfig{
		Name: "GROUP", Subjects: []string{"group.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source: "group.*", Destination: "{{partition(4,1)}}.group.{{wildcard(1)}}",
		},
	})
	members := []string{"one", "two"}
	step("group", func() (any, error) {
		return pcgroups.CreateStatic(ctx, js, "GROUP", "g", 4, []string{"group.*"}, members, nil)
	})
	var lock sync.Mutex
	got := map[string][]string{}
	all := make(chan struct{})
	config := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1}
	running := []pcgroups.ConsumerGroupConsumeContext{}
	for _, member := range members {
		consuming, err := pcgroups.StaticConsume(ctx, js, "GROUP", "g", member, func(msg jetstream.Msg) {
			lock.Lock()
			got[member] = append(got[member], msg.Subject()+"="+string(msg.Data()))
			count := len(got["one"]) + len(got["two"])
			lock.Unlock()
			_ = msg.Ack()
			if count == 40 {
				close(all)
			}
		}, config)
		must(err)
		running = append(running, consuming)
	}
	for number := range 40 {
		_, err := js.Publish(ctx, fmt.Sprintf("group.%d", number%8), fmt.Append(nil, number))
		must(err)
	}
	<-all
	for _, consuming := range running {
		consuming.Stop()
	}
	lock.Lock()
	for _, member := range members {
		sort.Strings(got[member])
		step("group "+member, func() (any, error) { return got[member], nil })
	}
	lock.Unlock()
	step("group list", func() (any, error) { return pcgroups.ListStaticConsumerGroups(ctx, js, "GROUP") })
	step("group gone", func() (any, error) { return nil, pcgroups.DeleteStatic(ctx, js, "GROUP", "g") })
	step("elastic", func() (any, error) {
		filters := []pcgroups.PartitioningFilter{{Filter: "group.*", PartitioningWildcards: []int{1}}}
		return pcgroups.CreateElastic(ctx, js, "GROUP", "e", 4, filters, 10, 1000)
	})
	step("elastic members", func() (any, error) {
		// They come in the order of a map of Go: any.
		members, err := pcgroups.AddMembers(ctx, js, "GROUP", "e", []string{"b", "a"})
		sort.Strings(members)
		return members, err
	})
	step("elastic gone", func() (any, error) { return nil, pcgroups.DeleteElastic(ctx, js, "GROUP", "e") })
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	nc, err := nats.Connect(os.Args[1])
	must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(err)
	atomicBatches(ctx, js)
	fastBatches(ctx, js)
	reads(ctx, js)
	counted(ctx, js)
	coded(ctx, js)
	many(ctx, nc)
	groups(ctx, js)
}
