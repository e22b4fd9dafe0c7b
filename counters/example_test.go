package counters_test

import (
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Three logins a minute for each address. The fourth has to wait until the first one has left the window: as nobody
// knows when in its sub-window it came, until the sub-window begins to leave. A client that came evenly would find room
// then.
func ExampleTable_Take() {
	meter := counters.Meter{
		Rule: "login/per_ip", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: 6 * time.Second,
	}
	limit, err := counters.NewLimit(meter, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	table := counters.NewTable(counters.Config{Origin: 1})

	const alice = counters.Key(0xa11ce) // a keyed hash of her address
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ask := func(at time.Duration) {
		d := table.Take(limit, alice, 1, noon.Add(at).UnixNano())
		fmt.Printf("%5v: allowed %-5v %d of %d left, retry after %v\n", at, d.Allowed, d.Remaining, d.Limit,
			d.RetryAfter)
	}
	ask(0)
	ask(10 * time.Second)
	ask(20 * time.Second)
	ask(30 * time.Second)
	ask(60*time.Second - 1)
	ask(60 * time.Second)
	ask(60 * time.Second)
	// Output:
	//    0s: allowed true  2 of 3 left, retry after 0s
	//   10s: allowed true  1 of 3 left, retry after 0s
	//   20s: allowed true  0 of 3 left, retry after 0s
	//   30s: allowed false 0 of 3 left, retry after 30s
	// 59.999999999s: allowed false 0 of 3 left, retry after 1ns
	//  1m0s: allowed true  0 of 3 left, retry after 0s
	//  1m0s: allowed false 0 of 3 left, retry after 6s
}

// A request that meets two limits is charged in both, or in neither.
func ExampleTable_TakeAll() {
	perIP, _ := counters.NewLimit(counters.NewMeter("api/per_ip", counters.SlidingWindow, time.Minute), 2)
	everybody, _ := counters.NewLimit(counters.NewMeter("api/all", counters.SlidingWindow, time.Minute), 100)
	table := counters.NewTable(counters.Config{Origin: 1})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

	for range 3 {
		decisions := table.TakeAll([]counters.Charge{
			{Limit: perIP, Key: 0xa11ce, Cost: 1},
			{Limit: everybody, Cost: 1},
		}, now, nil)
		d := decisions[counters.Governing(decisions)]
		fmt.Println(d.Allowed, d.Rule, d.Remaining)
	}
	fmt.Println("counted of all:", table.View(everybody, 0, now))
	// Output:
	// true api/per_ip 1
	// true api/per_ip 0
	// false api/per_ip 0
	// counted of all: 2
}

// Two nodes tell each other what they admitted. Hearing it twice changes nothing.
func ExampleTable_Merge() {
	limit, _ := counters.NewLimit(counters.NewMeter("api/per_ip", counters.SlidingWindow, time.Minute), 10)
	frankfurt := counters.NewTable(counters.Config{Origin: 1})
	tokyo := counters.NewTable(counters.Config{Origin: 2})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

	frankfurt.Take(limit, 0xa11ce, 4, now)
	tokyo.Take(limit, 0xa11ce, 3, now)
	delta := frankfurt.DrainDirty(now).Slots
	fmt.Println("novel:", tokyo.Merge(delta, now), "then", tokyo.Merge(delta, now))
	fmt.Println("counted:", frankfurt.View(limit, 0xa11ce, now), "and", tokyo.View(limit, 0xa11ce, now))
	// Output:
	// novel: 1 then 0
	// counted: 4 and 7
}

// decisions prints what a limit decides on requests of one key, each at a time after noon.
func decisions(l *counters.Limit, cost uint64, times ...time.Duration) {
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, at := range times {
		d := table.Take(l, 1, cost, noon.Add(at).UnixNano())
		fmt.Printf("%v: %v, %d left, retry after %v, delay %v\n", at, d.Allowed, d.Remaining, d.RetryAfter, d.Delay)
	}
}

// Two a minute by the clock: one at its end and two at the beginning of the next pass.
func ExampleAlgorithm_fixedWindow() {
	l, _ := counters.NewLimit(counters.NewMeter("r", counters.FixedWindow, time.Minute), 2)
	decisions(l, 1, 59*time.Second, 61*time.Second, 62*time.Second, 63*time.Second)
	// Output:
	// 59s: true, 1 left, retry after 0s, delay 0s
	// 1m1s: true, 1 left, retry after 0s, delay 0s
	// 1m2s: true, 0 left, retry after 0s, delay 0s
	// 1m3s: false, 0 left, retry after 57s, delay 0s
}

// Two in any minute: the third has to wait until the first is a minute old.
func ExampleAlgorithm_slidingLog() {
	l, _ := counters.NewLimit(counters.NewMeter("r", counters.SlidingLog, time.Minute), 2)
	decisions(l, 1, 50*time.Second, 61*time.Second, 62*time.Second, 110*time.Second)
	// Output:
	// 50s: true, 1 left, retry after 0s, delay 0s
	// 1m1s: true, 0 left, retry after 0s, delay 0s
	// 1m2s: false, 0 left, retry after 48s, delay 0s
	// 1m50s: true, 0 left, retry after 0s, delay 0s
}

// Ten dollars at once, and then five an hour: a bucket of cents.
func ExampleLimitConfig() {
	m := counters.NewMeter("r", counters.TokenBucket, time.Hour)
	l, _ := counters.LimitConfig{Meter: m, Max: 1000, Refill: 500}.New()
	decisions(l, 400, 0, 0, 0, 24*time.Minute)
	// Output:
	// 0s: true, 600 left, retry after 0s, delay 0s
	// 0s: true, 200 left, retry after 0s, delay 0s
	// 0s: false, 200 left, retry after 24m0s, delay 0s
	// 24m0s: true, 0 left, retry after 0s, delay 0s
}

// A leaky bucket of three that lets one a second out takes three at once. As a queue it sends them a second apart.
func ExampleAlgorithm_leakyQueue() {
	m := counters.NewMeter("r", counters.LeakyQueue, time.Second)
	l, _ := counters.LimitConfig{Meter: m, Max: 3, Refill: 1}.New()
	decisions(l, 1, 0, 0, 500*time.Millisecond, 500*time.Millisecond, time.Second)
	// Output:
	// 0s: true, 2 left, retry after 0s, delay 0s
	// 0s: true, 1 left, retry after 0s, delay 1s
	// 500ms: true, 0 left, retry after 0s, delay 1.5s
	// 500ms: false, 0 left, retry after 500ms, delay 0s
	// 1s: true, 0 left, retry after 0s, delay 2s
}

// A leaky bucket is a token bucket seen from below: what is left is the room in it.
func ExampleAlgorithm_leakyBucket() {
	m := counters.NewMeter("r", counters.LeakyBucket, time.Second)
	l, _ := counters.LimitConfig{Meter: m, Max: 3, Refill: 1}.New()
	decisions(l, 2, 0, 0, time.Second)
	// Output:
	// 0s: true, 1 left, retry after 0s, delay 0s
	// 0s: false, 1 left, retry after 1s, delay 0s
	// 1s: true, 0 left, retry after 0s, delay 0s
}
