package strict

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// newCall returns the only call of a request.
func newCall(t *testing.T, s *Store, asks []Ask) *call {
	t.Helper()
	r := request{store: s, asks: asks}
	testkit.Must(t, r.group())
	return r.calls[0]
}

// mustSend executes a call, of a token that may have been used before, and returns what it answers about each layer.
func mustSend(t *testing.T, s *Store, kind byte, c *call) []answer {
	t.Helper()
	_, answers, err := s.run(t.Context(), kind, c)
	testkit.Must(t, err)
	return answers
}

// eachOver tests limits of 3 whose denied requests are charged: by the rule, or as the request says.
func eachOver(t *testing.T, s *Store, test func(t *testing.T, asks []Ask)) {
	for _, a := range algorithms {
		for _, rejected := range []bool{false, true} {
			if rejected && isBucket(a) {
				continue
			}
			l := newLimit(t, a, 3, time.Hour)
			name := a.String() + " overdraw"
			if rejected {
				var err error
				if l, err = l.With(func(c *counters.LimitConfig) { c.CountRejected = true }); err != nil {
					t.Fatal(err)
				}
				name = a.String() + " count_rejected"
			}
			t.Run(name, func(t *testing.T) {
				asks := ask(l, counters.Key(s.tokens.next.Load()), 2)
				asks[0].Overdraw = !rejected
				test(t, asks)
			})
		}
	}
}

// A denied request that was charged is denied by its repetition too, is not charged again, and can be given back:
// whether its token is in the state or has moved to the second key.
func TestRepeatedDenial(t *testing.T) {
	t.Parallel()
	s := open(t, single(regionstest.StartRedis(t)))
	for _, moved := range []bool{false, true} {
		eachOver(t, s, func(t *testing.T, asks []Ask) {
			mustSend(t, s, callTake, newCall(t, s, asks))
			c := newCall(t, s, asks)
			first := mustSend(t, s, callTake, c)[0]
			if moved {
				one := ask(newLimit(t, asks[0].Limit.Meter().Algorithm, 100, time.Hour), asks[0].Key, 1)
				for range 16 {
					mustSend(t, s, callTake, newCall(t, s, one))
				}
			}
			again := mustSend(t, s, callAgain, c)[0]
			const charged = answerCharged
			if first.flags != charged || again.flags != charged || again.wait < 1 {
				t.Errorf("first %+v, again %+v, want both denied and charged", first, again)
			}
			used := func() float64 {
				peek := ask(newLimit(t, asks[0].Limit.Meter().Algorithm, 100, time.Hour), asks[0].Key, 0)
				return 100 - mustSend(t, s, callTake, newCall(t, s, peek))[0].remaining
			}
			before := used()
			s.Refund(Receipt{undos: []*undo{s.undoAll(asks, c, time.Now())}})
			settle(t, s)
			want := before - 2
			if asks[0].Limit.Meter().Algorithm == counters.LeakyQueue && moved {
				want = before // others are behind it
			}
			if got := used(); got > want || got < want-1 {
				t.Errorf("%v used, %v after the refund, want %v", before, got, want)
			}
		})
	}
}

// A first attempt that arrives after its repetition charges nothing, whatever the repetition did: of takes and reports,
// and of all layers.
func TestLateFirstAttempt(t *testing.T) {
	t.Parallel()
	s := open(t, single(regionstest.StartRedis(t)))
	for _, a := range algorithms {
		l, full := newLimit(t, a, 10, time.Hour), newLimit(t, a, 1, time.Hour)
		key := counters.Key(a)
		mustSend(t, s, callTake, newCall(t, s, ask(full, key+100, 1)))
		used := func() float64 { return 10 - mustSend(t, s, callTake, newCall(t, s, ask(l, key, 0)))[0].remaining }
		for i, test := range []struct {
			asks []Ask
			want float64
		}{
			{ask(l, key, 2), 2},
			{append(ask(l, key, 1), ask(full, key+100, 1)...), 2}, // it is denied
		} {
			c := newCall(t, s, test.asks)
			mustSend(t, s, callAgain, c)
			_, _, err := s.run(t.Context(), callTake, c)
			if void := err != nil && redis.HasErrorPrefix(err, "VOID"); void != (i == 1) {
				t.Errorf("%v: the late first attempt of take %d: %v", a, i, err)
			}
			if got := used(); got != test.want {
				t.Errorf("%v: %v used after take %d, want %v", a, got, i, test.want)
			}
		}
		c := newCall(t, s, ask(l, key, 3))
		for _, kind := range []byte{callReportAgain, callReport, callReportAgain} {
			mustSend(t, s, kind, c)
		}
		if got := used(); got != 5 {
			t.Errorf("%v: %v used after a report, want 5", a, got)
		}
	}
}

// A report whose answer is lost is charged once.
func TestLostAnswerOfReport(t *testing.T) {
	t.Parallel()
	proxy := newLossy(t, regionstest.StartRedis(t).Addr(), 0)
	s := open(t, regions.DefaultRedisConfig(proxy.Addr().String()))
	for _, a := range algorithms {
		asks := ask(newLimit(t, a, 100, time.Hour), 1, 10)
		testkit.Must(t, s.Report(t.Context(), asks))
		proxy.lost.Store(0) // the connection is closed
		proxy.answers.Store(999)
		proxy.every.Store(1000) // the next one
		if err := s.Report(t.Context(), asks); err != nil {
			t.Error(err)
		}
		proxy.every.Store(0)
		if proxy.lost.Load() != 1 {
			t.Errorf("%v: %d answers lost", a, proxy.lost.Load())
		}
		asks[0].Cost = 0
		if got := mustTake(t, s, asks).Remaining; got != 80 {
			t.Errorf("%v: %d remain after two reports, want 80", a, got)
		}
	}
}
