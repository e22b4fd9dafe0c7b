package strict

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The patience is four times what 99 % of the last calls took, rounded up to the next of durations, between its bounds:
// that of a naive model which sorts them.
func TestPatienceIsFourTimesTheUsual(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := patience{min: 250 * time.Millisecond, max: 2 * time.Second}
		var calls []time.Duration
		n := recomputeEvery * (2 + random.IntN(60)) // fewer than it begins to forget
		scale := time.Millisecond << random.IntN(11)
		for range n {
			calls = append(calls, time.Duration(random.ExpFloat64()*float64(scale)))
			p.note(calls[len(calls)-1])
		}
		slices.Sort(calls)
		usual := calls[len(calls)-1-len(calls)/100]
		i, _ := slices.BinarySearch(durations[:], usual)
		want := min(max(patienceFactor*durations[min(i, len(durations)-1)], p.min), p.max)
		if got := p.now(); got != want {
			t.Fatalf("after %d calls, of which 99 %% took at most %v: a patience of %v, want %v", n, usual, got, want)
		}
	}
}

// Until enough calls are known the patience is the longest, and a store that became slow or fast again is known as such
// once as many calls came as are remembered.
func TestPatienceFollowsTheStore(t *testing.T) {
	p := patience{min: 250 * time.Millisecond, max: 2 * time.Second}
	calls := func(n int, took time.Duration) {
		for range n {
			p.note(took)
		}
	}
	calls(knownCalls-1, time.Millisecond)
	if p.now() != p.max {
		t.Errorf("%v after %d calls, want %v", p.now(), knownCalls-1, p.max)
	}
	for _, c := range []struct{ took, want time.Duration }{
		{time.Millisecond, p.min}, {300 * time.Millisecond, patienceFactor * 362 * time.Millisecond},
		{3 * time.Second, p.max}, {time.Millisecond, p.min},
	} {
		calls(8*rememberCalls, c.took)
		if got := p.now(); got.Round(50*time.Millisecond) != c.want.Round(50*time.Millisecond) {
			t.Errorf("calls that take %v: a patience of %v, want about %v", c.took, got, c.want)
		}
	}
}

// A wait ends after its patience, in turns of which each begins once this process ran: the first turn of a process that
// had no CPU for a minute ends nothing.
func TestAProcessWithoutCPUIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{}
		s.patience.min, s.patience.max = time.Second, time.Second
		began := time.Now()
		ctx, stop := s.patiently(t.Context())
		defer stop()
		<-ctx.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("it ended after %v: %v", took, context.Cause(ctx))
		}
		if byCaller(ctx) {
			t.Error("it was the store that was too slow")
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &wait{cancel: cancel, patience: time.Hour, timer: time.AfterFunc(time.Hour, func() {})}
	defer w.stop()
	for turn := range patienceTurns {
		if ctx.Err() != nil {
			t.Fatalf("it ended in turn %d, however late", turn)
		}
		w.turn() // as late as the process ran
	}
	if ctx.Err() == nil {
		t.Error("it has no end")
	}
}
