package strict

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func reply(now float64, layers ...answer) string {
	b := binary.LittleEndian.AppendUint64(nil, math.Float64bits(now))
	for _, a := range layers {
		b = append(b, a.flags)
		for _, n := range []float64{a.remaining, a.wait, a.reset} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
		}
	}
	return string(b)
}

func FuzzDecode(f *testing.F) {
	f.Add(reply(1.7e15, answer{flags: answerAllowed, remaining: 9, reset: 1e6}), 1)
	f.Add(reply(1.7e15, answer{wait: -1}, answer{wait: math.Inf(1)}), 2)
	f.Add(reply(math.NaN()), 0)
	f.Add("", 1)
	l, err := counters.NewLimit(counters.NewMeter("r", counters.LeakyQueue, time.Minute), 10)
	testkit.Must(f, err)
	f.Fuzz(func(t *testing.T, text string, layers int) {
		layers = max(0, layers%(counters.MaxLayers+1))
		now, answers, err := decode(text, layers)
		if err != nil {
			if len(answers) > len(text) {
				t.Errorf("%d answers in %d bytes", len(answers), len(text))
			}
			return
		}
		if now < 0 || len(answers) != layers {
			t.Fatalf("time %d, %d answers", now, len(answers))
		}
		for _, a := range answers {
			var d counters.Decision
			a.decision(l, counters.Enforce, &d)
			if d.Remaining > d.Limit || d.ResetAfter < 0 || d.Delay < 0 || d.RetryAfter < counters.Never ||
				d.Allowed && d.RetryAfter != 0 {
				t.Errorf("%+v became %+v", a, d)
			}
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	for name, bad := range map[string]any{
		"nothing": nil, "a number": int64(1), "short": "1234567", "no layer": reply(1), "time": reply(-1, answer{}),
		"remaining": reply(1, answer{remaining: -1}), "no number": reply(1, answer{reset: math.NaN()}),
		"wait": reply(1, answer{wait: -2}),
	} {
		if _, _, err := decode(bad, 1); err == nil || !strings.Contains(err.Error(), "the script answered") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheck(t *testing.T) {
	bucket := func(capacity, refill uint64, window time.Duration) *counters.Limit {
		m := counters.NewMeter("r", counters.TokenBucket, window)
		l, err := counters.LimitConfig{Meter: m, Max: capacity, Refill: refill}.New()
		testkit.Must(t, err)
		return l
	}
	second := newLimit(t, counters.FixedWindow, 1, time.Second)
	with := func(change func(*counters.LimitConfig)) *counters.Limit {
		l, err := second.With(change)
		testkit.Must(t, err)
		return l
	}
	for _, c := range []struct {
		limit *counters.Limit
		says  string // of the error; empty: none
	}{
		{newLimit(t, counters.SlidingWindow, counters.MaxLimit, counters.MaxWindow), ""},
		{newLimit(t, counters.SlidingWindow, 1, 10*time.Millisecond+10*time.Nanosecond), "microseconds"},
		{newLimit(t, counters.LeakyQueue, 1000, time.Minute), ""},
		{newLimit(t, counters.TokenBucket, 0, time.Minute), ""},
		{bucket(1e10, 1e10, time.Hour), ""},
		{bucket(counters.MaxLimit, counters.MaxLimit-1, 365*24*time.Hour), "no exact state"},
		{with(func(c *counters.LimitConfig) { c.Tally = true }), "every request"},
		{with(func(c *counters.LimitConfig) { c.Scope = counters.Alone }), "per node"},
		{with(func(c *counters.LimitConfig) { c.Scope, c.Region = counters.Region, "eu" }), ""},
	} {
		switch err := Check(c.limit); {
		case c.says == "" && err != nil:
			t.Error(err)
		case c.says != "" && (!errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}
