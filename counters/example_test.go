package counters_test

import (
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Three logins a minute for each address. The fourth has to wait until enough of the first ones has left the window: with one
// sub-window of a minute, after this minute two thirds of the next one.
func ExampleTable_Take() {
	meter := counters.Meter{Rule: "login/per_ip", Algorithm: counters.SlidingWindow, Window: time.Minute, Sub: time.Minute}
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
		fmt.Printf("%5v: allowed %-5v %d of %d left, retry after %v\n", at, d.Allowed, d.Remaining, d.Limit, d.RetryAfter)
	}
	ask(0)
	ask(10 * time.Second)
	ask(20 * time.Second)
	ask(30 * time.Second)
	ask(80*time.Second - 1)
	ask(80 * time.Second)
	// Output:
	//    0s: allowed true  2 of 3 left, retry after 0s
	//   10s: allowed true  1 of 3 left, retry after 0s
	//   20s: allowed true  0 of 3 left, retry after 0s
	//   30s: allowed false 0 of 3 left, retry after 50s
	// 1m19.999999999s: allowed false 0 of 3 left, retry after 1ns
	// 1m20s: allowed true  0 of 3 left, retry after 0s
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
