package decisionlog

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg, slog.New(slog.DiscardHandler))
	testkit.Must(t, err)
	return l
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	testkit.Must(t, err)
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// However many clients are denied, no more lines than allowed are written, and nobody waits for them. What is dropped
// is counted.
func TestRateIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	testkit.VirtualTime(t, func(t *testing.T) {
		l := open(t, Config{File: file, Denied: true, MaxPerSecond: 100})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		denied := Entry{Outcome: "denied"}
		for range 3 {
			for range 10_000 {
				l.Add(&denied)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		cancel()
		<-done
		l.Close()
		if s := l.Stats(); s.Written != 300 || s.Dropped != 29_700 || s.Failures != 0 {
			t.Errorf("%+v, want 100 lines a second", s)
		}
	})
	if got := lines(t, file); len(got) != 300 {
		t.Errorf("%d lines", len(got))
	}
}

// A pipe whose reader has stopped loses lines, and holds up neither decisions nor the end.
func TestStalledReader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, syscall.Mkfifo(file, 0o600))
	reader, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	testkit.Must(t, err)
	defer reader.Close()
	l := open(t, Config{File: file, Sample: 1, MaxPerSecond: 10_000})
	for range 10_000 {
		l.Add(&Entry{Rule: strings.Repeat("r", 100)})
	}
	l.Close()
	if s := l.Stats(); s.Failures == 0 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// A line has what was decided, and never more of the identity than its hash.
func TestLine(t *testing.T) {
	e := Entry{At: 1_700_000_000_500_000_000, Rule: "edge/client", Identity: 0x3f0c, Outcome: "denied", Cost: 2,
		Decision: counters.Decision{Limit: 10, Remaining: 1, RetryAfter: 1500 * time.Millisecond, Degraded: true}}
	const want = `{"time":"2023-11-14T22:13:20.5Z","rule":"edge/client","identity":"0000000000003f0c",` +
		`"outcome":"denied","cost":2,"limit":10,"remaining":1,"retry_after_ms":1500,"degraded":true}`
	if got := string(e.append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	e.Rule, e.Decision.RetryAfter, e.At = "a\n\"\xff", counters.Never, math.MaxInt64
	var back line
	if got := e.append(nil); json.Unmarshal(got, &back) != nil || strings.Contains(string(got), "\n") ||
		back.RetryAfterMS != -1 {
		t.Errorf("got  %s", got)
	}
}

func TestSample(t *testing.T) {
	const asked = 100_000
	for _, cfg := range []Config{{Sample: 0.1}, {Sample: 0}, {Sample: 1}, {Sample: 0.1, Denied: true}} {
		l := &Log{cfg: cfg}
		wanted, denied := 0, 0
		for range asked {
			if l.Wants(false) {
				wanted++
			}
			if l.Wants(true) {
				denied++
			}
		}
		want := cfg.Sample * asked
		if math.Abs(float64(wanted)-want) > 1000*cfg.Sample*10 || cfg.Denied && denied != asked {
			t.Errorf("%+v: %d of %d, and %d denials", cfg, wanted, asked, denied)
		}
	}
}

// To add an entry allocates nothing, whether there is room or not.
func TestAddAllocatesNothing(t *testing.T) {
	l := &Log{cfg: Config{Sample: 0.5, Denied: true}, queue: make(chan Entry, 200)}
	e := Entry{Rule: "r"}
	if allocs := testing.AllocsPerRun(500, func() {
		if l.Wants(true) {
			l.Add(&e)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if l.dropped.Load() == 0 {
		t.Error("there was always room")
	}
}

func TestValidate(t *testing.T) {
	valid := DefaultConfig()
	if err := valid.Validate(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []Config{{Sample: math.NaN(), MaxPerSecond: 1}, {Sample: 1.5, MaxPerSecond: 1},
		{Sample: -1, MaxPerSecond: 1}, {MaxPerSecond: 0}, {MaxPerSecond: 100_001}, {File: "x", MaxPerSecond: 1}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v is valid", wrong)
		}
	}
}
