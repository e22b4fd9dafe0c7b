package statsd

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cactus/go-statsd-client/v5/statsd"

	"github.com/edgelimit/edgelimit/node/limits"
)

// Each calls f with every counter and its total, which never decreases unless the counter was gone in between.
type Each func(f func(name string, total uint64))

// Exporter sends what counters have grown by. What could not be sent is part of the next sending. New makes it.
type Exporter struct {
	cfg    Config
	each   Each
	log    *slog.Logger
	failed limits.OncePerMinute

	suffix string       // of all names: the tags, unless they follow the value
	tags   []statsd.Tag // behind all values
	out    *sender
	client statsd.StatSender

	sent map[string]uint64 // the totals that the server knows, by the counter's name
}

// New returns an exporter of a valid configuration with an address.
func New(cfg Config, each Each, log *slog.Logger) *Exporter {
	e := &Exporter{cfg: cfg, each: each, log: log, out: &sender{cfg: cfg}, sent: make(map[string]uint64)}
	for _, name := range slices.Sorted(maps.Keys(cfg.Tags)) {
		value := cleanTag.Replace(cfg.Tags[name])
		switch {
		case value == "":
		case cfg.Datadog:
			e.tags = append(e.tags, statsd.Tag{name, value})
		default:
			e.suffix += ".__" + name + "=" + value
		}
	}
	e.client, _ = statsd.NewClientWithSender(e.out, "", statsd.SuffixOctothorpe) // an error is for no sender
	return e
}

// cleanTag replaces what has a meaning in a line, as envoyproxy/ratelimit does.
var cleanTag = strings.NewReplacer(".", "_", ":", "_", "|", "_", "\n", "_")

// Run sends once an interval until ctx ends, and a last time then.
func (e *Exporter) Run(ctx context.Context) {
	ticker := time.NewTicker(e.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			e.send()
		case <-ctx.Done():
			e.send()
			return
		}
	}
}

// send sends what has changed since the last time, up to the first error.
func (e *Exporter) send() {
	var err error
	names := 0
	e.each(func(name string, total uint64) {
		names++
		grown := total - e.sent[name]
		if total < e.sent[name] { // it began again
			grown = total
		}
		if err != nil || grown == 0 {
			return
		}
		err = e.client.Inc(name+e.suffix, int64(grown), 1, e.tags...)
		if err == nil {
			e.out.then(func() { e.sent[name] = total })
		}
	})
	if err == nil {
		err = e.out.flush()
	}
	e.out.drop()
	if len(e.sent) > names {
		e.forget()
	}
	if err != nil && e.failed.Due(time.Now()) {
		e.log.Warn("statistics could not be sent to statsd: they are sent with the next ones", "address", e.cfg.Address,
			"network", e.cfg.Network, "error", err)
	}
}

// forget removes counters that are gone.
func (e *Exporter) forget() {
	kept := make(map[string]uint64)
	e.each(func(name string, _ uint64) {
		if total, ok := e.sent[name]; ok {
			kept[name] = total
		}
	})
	e.sent = kept
}
