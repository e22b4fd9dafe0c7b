package regions

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// The rule as it is written, in numbers that do not overflow.
func expiredByTheBook(m *counters.Meter, index, now int64) bool {
	end := new(big.Int).Add(big.NewInt(index), big.NewInt(1))
	end.Mul(end, big.NewInt(int64(m.Sub)))
	end.Add(end, big.NewInt(int64(m.Window)))
	return end.Cmp(big.NewInt(now)) < 0
}

func TestExpired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 60).Draw(t, "sub-windows")
		sub := rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "sub")
		m := &counters.Meter{
			Rule: "r", Algorithm: counters.SlidingWindow, Window: time.Duration(n * sub), Sub: time.Duration(sub),
		}
		now := rapid.Int64Range(int64(m.Window)+1, math.MaxInt64).Draw(t, "now")
		if rapid.Bool().Draw(t, "on the border") {
			now -= now % sub
			now = max(now+rapid.Int64Range(-2, 2).Draw(t, "beside"), int64(m.Window)+1)
		}
		index := rapid.OneOf(
			rapid.Int64Range(0, math.MaxInt64),
			rapid.Map(rapid.Int64Range(-n-3, 2), func(age int64) int64 { return max(0, m.Index(now)+age) }),
		).Draw(t, "index")
		if got, want := expired(m, index, now), expiredByTheBook(m, index, now); got != want {
			t.Fatalf("sub-window %d of %v/%v at %d: expired is %v, want %v", index, m.Window, m.Sub, now, got, want)
		}
	})
}

// The table keeps what overlaps the window; a store must not expire anything of that.
func TestExpiredNeverBeforeTheTable(t *testing.T) {
	m := counters.NewMeter("r", counters.SlidingWindow, 10*time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for _, beside := range []int64{-1, 0, 1, int64(m.Sub) / 2} {
		at := now + beside
		if oldest := m.Index(at) - int64(m.SubWindows()); expired(&m, oldest, at) {
			t.Errorf("%d ns beside a border: the oldest sub-window that a table counts has expired", beside)
		}
		if gone := m.Index(at) - int64(m.SubWindows()) - 2; !expired(&m, gone, at) {
			t.Errorf("%d ns beside a border: a sub-window that has passed has not expired", beside)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatalf("the defaults are invalid: %v", err)
	}
	everything := DefaultConfig()
	everything.MinWindow = 0
	if err := everything.Validate(); err != nil {
		t.Errorf("a shortest window of 0: %v", err)
	}
	err := Config{Cooldown: -1, Restore: -2, MinWindow: -time.Second}.Validate()
	if err == nil {
		t.Fatal("a configuration of zeros is valid")
	}
	for _, say := range []string{"interval is 0s", "time-out of a call is 0s", "cool-down is -1ns", "restore is -2",
		"last flush is 0s",
		"chunk has 0 slots", "pending slots is 0", "shortest window is -1s"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("not all problems are reported: %q is missing from\n%v", say, err)
		}
	}
	if r, err := NewReconciler(Config{}, nil, nil); err == nil || r != nil {
		t.Errorf("NewReconciler took a configuration of zeros: %v, %v", r, err)
	}
}
