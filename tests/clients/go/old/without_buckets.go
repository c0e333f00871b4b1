//go:build !buckets

package main

import "github.com/nats-io/nats.go"

func more(nc *nats.Conn, js nats.JetStreamContext, meta func(*nats.Msg) L) {}
