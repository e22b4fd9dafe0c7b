package statsd

import (
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cactus/go-statsd-client/v5/statsd"

	"github.com/edgelimit/edgelimit/node/limits"
)

// Source has the statistics that are sent.
type Source struct {
	// Counters calls f with every counter and its total, which never decreases unless the counter was gone in between.
	Counters func(f func(name string, total uint64))
	// Times calls f with how often something took so many milliseconds; nil: there are none.
	Times func(f func(name string, ms int64, total uint64))
	// Gauges calls f with values of this moment; nil: there are none.
	Gauges func(f func(name string, value uint64))
}

// timed is a statistic of Source.Times.
type timed struct {
	name string
	ms   int64
}

// Exporter sends what counters have grown by. What could not be sent is part of the next sending. New makes it.
type Exporter struct {
	cfg    Config
	source Source
	log    *slog.Logger
	failed limits.OncePerMinute

	suffix string       // of all names: the tags, unless they follow the value
	tags   []statsd.Tag // behind all values

	patterns []*regexp.Regexp // of the mogrifiers

	out    *sender
	client statsd.StatSender

	sent      map[string]uint64 // the totals that the server knows, by the counter's name
	sentTimes map[timed]uint64
}

// New returns an exporter of a valid configuration with an address.
func New(cfg Config, source Source, log *slog.Logger) *Exporter {
	e := &Exporter{cfg: cfg, source: source, log: log, out: &sender{cfg: cfg}, sent: make(map[string]uint64),
		sentTimes: make(map[timed]uint64)}
	for _, m := range cfg.Mogrifiers {
		e.patterns = append(e.patterns, regexp.MustCompile(m.Pattern))
	}
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
	client, _ := statsd.NewClientWithSender(e.out, "", statsd.SuffixOctothorpe) // an error is for no sender
	if c, ok := client.(*statsd.Client); ok {
		c.SetSamplerFunc(func(float32) bool { return true }) // a rate says what a line stands for
	}
	e.client = client
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

// send sends what has changed since the last time, and all gauges, up to the first error.
func (e *Exporter) send() {
	names, err := e.sendCounters()
	if err == nil && e.source.Times != nil {
		err = e.sendTimes()
	}
	if err == nil && e.source.Gauges != nil {
		e.source.Gauges(func(name string, value uint64) {
			if err == nil {
				name, tags := e.mogrify(name)
				err = e.client.Gauge(name, int64(value), 1, tags...)
			}
		})
	}
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

// sendCounters returns how many there are.
func (e *Exporter) sendCounters() (names int, err error) {
	e.source.Counters(func(name string, total uint64) {
		names++
		grown := total - e.sent[name]
		if total < e.sent[name] { // it began again
			grown = total
		}
		if err != nil || grown == 0 {
			return
		}
		sendAs, tags := e.mogrify(name)
		err = e.client.Inc(sendAs, int64(grown), 1, tags...)
		if err == nil {
			e.out.then(func() { e.sent[name] = total })
		}
	})
	return names, err
}

// sendTimes sends one line for all that took as long, with the rate of one to so many.
func (e *Exporter) sendTimes() (err error) {
	e.source.Times(func(name string, ms int64, total uint64) {
		at := timed{name, ms}
		grown := total - e.sentTimes[at]
		if err != nil || grown == 0 {
			return
		}
		sendAs, tags := e.mogrify(name)
		err = e.client.Timing(sendAs, ms, 1/float32(grown), tags...)
		if err == nil {
			e.out.then(func() { e.sentTimes[at] = total })
		}
	})
	return err
}

// forget removes counters that are gone.
func (e *Exporter) forget() {
	kept := make(map[string]uint64)
	e.source.Counters(func(name string, _ uint64) {
		if total, ok := e.sent[name]; ok {
			kept[name] = total
		}
	})
	e.sent = kept
}
