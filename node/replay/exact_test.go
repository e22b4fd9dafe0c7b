package replay

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// minute is a client in a minute of the clock.
type minute struct {
	client string
	at     int64
}

// naive counts by hand what a limit a minute denies: a dozen lines that know nothing of the engine, nor of how logs are
// read.
func naive(t *testing.T, log string, limit int) map[minute]int {
	t.Helper()
	asked := make(map[minute]int)
	for l := range strings.Lines(log) {
		f := strings.Fields(l)
		at, err := time.Parse("[02/Jan/2006:15:04:05", f[3])
		testkit.Must(t, err)
		asked[minute{f[0], at.Unix() / 60}]++
	}
	denied := make(map[minute]int)
	for m, n := range asked {
		if n > limit {
			denied[m] = n - limit
		}
	}
	return denied
}

// For a fixed minute the engine denies what counting by hand denies: as often each client, in each minute.
func TestFixedMinuteIsExact(t *testing.T) {
	const limit = 12
	log := traffic(20_000)
	rules := limited(t, fmt.Sprintf("unit: minute, requests_per_unit: %d, algorithm: fixed_window", limit))
	r := started(t, t.Context(), options(rules), logOf("log", log))
	got := make(map[minute]int)
	for before := uint64(0); r.step(); before = r.new.Denied {
		if r.new.Denied > before {
			by := r.new.deniers[0]
			got[minute{by.metrics.identities[by.identity].Name, r.now / int64(time.Minute)}]++
		}
	}
	want := naive(t, log, limit)
	if !maps.Equal(got, want) {
		t.Errorf("denied are %v\nwant %v", got, want)
	}
	p := r.report()
	var denied int
	clients := make(map[string]bool)
	for m, n := range want {
		denied += n
		clients[m.client] = true
	}
	if denied < 100 || p.Denied != uint64(denied) || p.Rules[0].Denied != uint64(denied) ||
		p.Rules[0].IdentitiesDenied != len(clients) ||
		p.Requests != 20_000 || p.Rules[0].Requests != 20_000 ||
		p.Late != 0 ||
		p.Malformed != 0 {
		t.Errorf("%+v, want %d denied of %d clients", p, denied, len(clients))
	}
}

// The highest peak is the smallest limit that denies nobody. Buckets and logs are let off with less at most.
func TestPeakIsTheSmallestLimitThatDeniesNobody(t *testing.T) {
	log := traffic(5_000)
	for _, a := range []struct {
		algorithm string
		exact     bool
	}{{"fixed_window", true}, {"sliding_window", true}, {"sliding_log", false}, {"token_bucket", false},
		{"leaky_bucket", false}} {
		with := func(limit uint64) *Report {
			return replayed(
				t,
				options(
					limited(t, fmt.Sprintf("unit: minute, requests_per_unit: %d, algorithm: %s", limit, a.algorithm)),
				),
				log,
			)
		}
		first := with(3)
		peak := first.Rules[0].Peaks.Max
		if first.Denied == 0 || peak < 20 {
			t.Fatalf("%s: %+v", a.algorithm, first)
		}
		enough := with(peak)
		if enough.Denied != 0 || enough.Rules[0].Peaks.Max != peak {
			t.Errorf("%s: a limit of %d, the peak, denies %d", a.algorithm, peak, enough.Denied)
		}
		if less := with(peak - 1); a.exact && less.Denied == 0 {
			t.Errorf("%s: a limit of %d, below the peak, denies nobody", a.algorithm, peak-1)
		}
		s := first.Rules[0].Suggested
		if got := with(s.Limit); a.exact && got.Rules[0].IdentitiesDenied != s.Exceeding {
			t.Errorf("%s: the suggestion of %d denies %d identities, %d were told", a.algorithm, s.Limit,
				got.Rules[0].IdentitiesDenied, s.Exceeding)
		}
	}
}

// A bucket that takes long to fill is measured over as long as that.
func TestDemandMeter(t *testing.T) {
	const ms, sliding = time.Millisecond, counters.SlidingWindow
	for _, c := range []struct {
		limit       string
		algorithm   counters.Algorithm
		window, sub time.Duration
	}{
		{"unit: minute, requests_per_unit: 5", sliding, time.Minute, 6 * time.Second},
		{"unit: hour, requests_per_unit: 5, algorithm: fixed_window", counters.FixedWindow, time.Hour, time.Hour},
		{"window: 10s, requests_per_unit: 5, algorithm: sliding_log", sliding, 10 * time.Second, time.Second},
		{"requests_per_unit: 10, algorithm: token_bucket, refill: {amount: 1, every: 1h}", sliding, 10 * time.Hour,
			time.Hour},
		{"window: 1s, requests_per_unit: 7, burst: 50, algorithm: leaky_bucket", sliding, 7150 * ms, 715 * ms},
		{"window: 1ms, requests_per_unit: 7000, burst: 1, algorithm: leaky_bucket", sliding, ms, ms},
		{"requests_per_unit: 500, algorithm: token_bucket, refill: {amount: 1, every: 24h}", sliding,
			counters.MaxWindow, counters.MaxWindow / 10},
		{"unit: minute, requests_per_unit: 0, algorithm: token_bucket", sliding, time.Minute, 6 * time.Second},
	} {
		want := counters.Meter{Rule: "web/remote_address", Algorithm: c.algorithm, Window: c.window, Sub: c.sub}
		if got := demandMeter(limited(t, c.limit).Rules()[0].Limit); got != want || got.Validate() != nil {
			t.Errorf("%s: %+v, %v, want %+v", c.limit, got, got.Validate(), want)
		}
	}
}
