package limits

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

var noon = time.Unix(1_700_000_000, 0)

// kind is a limit of so many per so many seconds; a window if slides, else a bucket.
type kind struct {
	most, seconds int64
	slides        bool
}

var errNone = errors.New("a limit of nothing")

func (k kind) limit() (*counters.Limit, error) {
	if k.most == 0 {
		return nil, errNone
	}
	algorithm := counters.TokenBucket
	if k.slides {
		algorithm = counters.SlidingWindow
	}
	meter := counters.NewMeter(fmt.Sprintf("%%test/%d/%d", k.most, k.seconds), algorithm, time.Duration(k.seconds)*time.Second)
	return counters.NewLimit(meter, uint64(k.most))
}

const most = 100

func keeper(learn func([]*counters.Limit)) *Keeper[kind] { return NewKeeper(most, kind.limit, learn) }

func mustGet(t *testing.T, k *Keeper[kind], of kind, now time.Time) *counters.Limit {
	t.Helper()
	l, err := k.Get(of, now)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKeeper(t *testing.T) {
	k := keeper(nil)
	l := mustGet(t, k, kind{5, 60, false}, noon)
	if l.Max() != 5 || mustGet(t, k, kind{5, 60, false}, noon.Add(time.Hour)) != l {
		t.Error("the same kind is another limit")
	}
	if mustGet(t, k, kind{6, 60, false}, noon) == l || k.Len() != 2 {
		t.Errorf("%d limits are kept of two kinds", k.Len())
	}
	if _, err := k.Get(kind{}, noon); !errors.Is(err, errNone) || k.Len() != 2 {
		t.Errorf("of a kind that is wrong: %v, %d are kept", err, k.Len())
	}
}

func TestKeeperIsCapped(t *testing.T) {
	learned, calls := 0, 0
	k := keeper(func(all []*counters.Limit) { learned, calls = len(all), calls+1 })
	for i := range int64(most) { // each bucket is full again after 1 s, but the first, after half an hour
		of := kind{i + 1, 1, false}
		if i == 0 {
			of.seconds = 1800
		}
		mustGet(t, k, of, noon)
		if learned != int(i)+1 || calls != int(i)+1 {
			t.Fatalf("after %d limits %d are known, told in %d times", i+1, learned, calls)
		}
	}
	first, more := mustGet(t, k, kind{1, 1800, false}, noon), kind{7, 7, false}
	refused := func(after time.Duration) {
		t.Helper()
		if _, err := k.Get(more, noon.Add(after)); !errors.Is(err, ErrFull) {
			t.Errorf("one more after %v: %v", after, err)
		}
	}
	refused(0)
	refused(1999 * time.Millisecond)
	inUse := mustGet(t, k, kind{2, 1, false}, noon.Add(1900*time.Millisecond))
	mustGet(t, k, more, noon.Add(2*time.Second)) // all but three are idle, and full again
	if k.Len() != 3 || learned != 3 {
		t.Errorf("%d limits are kept, %d known", k.Len(), learned)
	}
	if mustGet(t, k, kind{2, 1, false}, noon.Add(2*time.Second)) != inUse || mustGet(t, k, kind{1, 1800, false}, noon.Add(2*time.Second)) != first {
		t.Error("limits in use went")
	}
	if calls != most+1 {
		t.Errorf("told %d times", calls)
	}
}

// What a sliding window counts leaves it a sub-window late.
func TestSlidingLimitsStayUntilTheirCountsAreGone(t *testing.T) {
	k := keeper(nil)
	for i := range int64(most) {
		mustGet(t, k, kind{i + 1, 10, true}, noon)
	}
	if _, err := k.Get(kind{1, 1, true}, noon.Add(11999*time.Millisecond)); !errors.Is(err, ErrFull) {
		t.Errorf("after 10 s, a sub-window of 1 s and nearly another: %v", err)
	}
	mustGet(t, k, kind{1, 1, true}, noon.Add(12*time.Second))
}

// A limit that is in use all the time stays, also if it was never the newest; and there is room again after there was none.
func TestLimitsInUseStay(t *testing.T) {
	k := keeper(nil)
	for s := range 10 {
		now := noon.Add(time.Duration(s) * time.Second)
		for i := range int64(most) {
			mustGet(t, k, kind{i + 1, 1, false}, now)
		}
		if _, err := k.Get(kind{1, 2, false}, now); !errors.Is(err, ErrFull) {
			t.Fatalf("after %d s there is room: %v", s, err)
		}
	}
	mustGet(t, k, kind{1, 2, false}, noon.Add(20*time.Second))
}

// Of those who ask for a new kind at once, all get the same limit.
func TestKeeperAtOnce(t *testing.T) {
	k := keeper(func([]*counters.Limit) {})
	var got [8][most]*counters.Limit
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			for j := range got[i] {
				got[i][j], _ = k.Get(kind{int64(j) + 1, 1, false}, noon)
			}
		})
	}
	all.Wait()
	for i := range got {
		if got[i] != got[0] || got[i][0] == nil {
			t.Fatalf("%d got others than the first", i)
		}
	}
}
