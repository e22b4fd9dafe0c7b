package statsd

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Names and tags are those that envoyproxy/ratelimit sends with the same DOG_STATSD_MOGRIFIER_* variables.
func TestMogrifiers(t *testing.T) {
	conn := udp(t)
	c := totals{"limit.edge.ip.total_hits": 2, "limit.other": 1, "plain": 3}
	exporter("udp", conn.LocalAddr().String(), c, func(cfg *Config) {
		cfg.Datadog, cfg.Tags = true, map[string]string{"env": "prod"}
		cfg.Mogrifiers = []Mogrifier{
			{Pattern: `^(.*)\.(.*)\.(.*)\.(.*)$`, Name: "$1.$4",
				Tags: map[string]string{"key": "$3", "domain": "$2-$9"}},
			{Pattern: "limit", Name: "all"},
		}
	}).send()
	const want = "limit.total_hits:2|c|#env:prod,domain:edge-$9,key:ip\nall:1|c|#env:prod\nplain:3|c|#env:prod"
	if got := receive(t, conn, 1)[0]; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestMogrifiersAreChecked(t *testing.T) {
	for want, m := range map[string]Mogrifier{
		"mogrifiers[0]: pattern: ":                 {Pattern: "(", Name: "x"},
		"mogrifiers[0]: give a pattern and a name": {Pattern: "x"},
		"mogrifiers[0]: tags: ":                    {Pattern: "x", Name: "y", Tags: map[string]string{"a": ""}},
		"":                                         {Pattern: "x", Name: "y"},
	} {
		cfg := DefaultConfig()
		cfg.Datadog, cfg.Mogrifiers = true, []Mogrifier{m}
		if err := cfg.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", m, err, want)
		}
		cfg.Datadog = false
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "datadog: true") {
			t.Errorf("without datadog: %v", err)
		}
	}
}

// What took as long is one line, whose rate says how many it stands for; gauges are sent each time.
func TestTimesAndGauges(t *testing.T) {
	conn := udp(t)
	cfg := DefaultConfig()
	cfg.Network, cfg.Address = "udp", conn.LocalAddr().String()
	took := map[int64]uint64{0: 4, 1: 1}
	e := New(cfg, Source{
		Counters: totals{"a": 1}.each,
		Times: func(f func(name string, ms int64, total uint64)) {
			f("time", 0, took[0])
			f("time", 1, took[1])
		},
		Gauges: func(f func(name string, value uint64)) { f("gauge", 7) },
	}, slog.New(slog.DiscardHandler))
	e.send()
	const first = "a:1|c\ntime:0|ms|@0.250000\ntime:1|ms\ngauge:7|g"
	if got := receive(t, conn, 1)[0]; got != first {
		t.Errorf("sent %q, want %q", got, first)
	}
	took[0] += 2
	e.send()
	const second = "time:0|ms|@0.500000\ngauge:7|g"
	if got := receive(t, conn, 1)[0]; got != second {
		t.Errorf("sent %q, want %q", got, second)
	}
}

func TestShortIntervals(t *testing.T) {
	for interval, ok := range map[time.Duration]bool{
		time.Microsecond: false, time.Millisecond: true, 2 * time.Hour: false,
	} {
		cfg := DefaultConfig()
		cfg.Interval = interval
		if err := cfg.Validate(); (err == nil) != ok {
			t.Errorf("%v: %v", interval, err)
		}
	}
}
