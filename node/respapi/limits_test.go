package respapi

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

var noon = time.Unix(1_700_000_000, 0)

func mustGet(t *testing.T, l *limits, s shape, now time.Time) *counters.Limit {
	t.Helper()
	limit, err := l.get(s, now)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func TestLimitsOfAShape(t *testing.T) {
	l := newLimits(nil)
	limit := mustGet(t, l, shape{15, 30, 60}, noon)
	want := counters.Meter{Rule: "%cl.throttle/15/30/60", Algorithm: counters.TokenBucket, Window: time.Minute, Sub: time.Minute}
	if limit.Meter() != want || limit.Max() != 16 || limit.Refill() != 30 {
		t.Errorf("%+v, %d, %d", limit.Meter(), limit.Max(), limit.Refill())
	}
	if mustGet(t, l, shape{15, 30, 60}, noon.Add(time.Hour)) != limit {
		t.Error("the same shape is another limit")
	}
	for _, other := range []shape{{16, 30, 60}, {15, 31, 60}, {15, 30, 61}} {
		if mustGet(t, l, other, noon).Meter() == limit.Meter() {
			t.Errorf("%v shares the meter", other)
		}
	}
}

func TestLimitsAreCapped(t *testing.T) {
	learned, calls := 0, 0
	l := newLimits(func(all []*counters.Limit) { learned, calls = len(all), calls+1 })
	for i := range MaxLimits { // each lasts for 2 s, but the first, which lasts for an hour
		s := shape{1, 1, 1}
		if i == 0 {
			s.period = 1800
		} else {
			s.maxBurst, s.count = int64(2*i-1), int64(i)
		}
		mustGet(t, l, s, noon)
		if learned != i+1 || calls != i+1 {
			t.Fatalf("after %d limits %d are known, told in %d times", i+1, learned, calls)
		}
	}
	first := mustGet(t, l, shape{1, 1, 1800}, noon)
	more := shape{7, 7, 7}
	refused := func(after time.Duration) {
		t.Helper()
		if _, err := l.get(more, noon.Add(after)); err == nil || !strings.Contains(err.Error(), "1024 different limits are in use") {
			t.Errorf("one more after %v: %v", after, err)
		}
	}
	refused(0)
	refused(2999 * time.Millisecond)
	inUse := mustGet(t, l, shape{1, 1, 1}, noon.Add(2900*time.Millisecond))
	mustGet(t, l, more, noon.Add(3*time.Second)) // all but three are idle, and full again
	if l.len() != 3 || learned != 3 {
		t.Errorf("%d limits are kept, %d known", l.len(), learned)
	}
	if mustGet(t, l, shape{1, 1, 1}, noon.Add(3*time.Second)) != inUse || mustGet(t, l, shape{1, 1, 1800}, noon.Add(3*time.Second)) != first {
		t.Error("limits in use went")
	}
	if calls != MaxLimits+1 {
		t.Errorf("told %d times", calls)
	}
}

// A limit that is in use all the time stays, also if it was never the newest; and there is room again after there was none.
func TestLimitsInUseStay(t *testing.T) {
	l := newLimits(nil)
	for i := range int64(MaxLimits) {
		mustGet(t, l, shape{0, i + 1, 1}, noon)
	}
	for s := range 10 {
		now := noon.Add(time.Duration(s) * time.Second)
		for i := range int64(MaxLimits) {
			mustGet(t, l, shape{0, i + 1, 1}, now)
		}
		if _, err := l.get(shape{1, 1, 1}, now); err == nil {
			t.Fatalf("after %d s there is room", s)
		}
	}
	mustGet(t, l, shape{1, 1, 1}, noon.Add(20*time.Second))
}
