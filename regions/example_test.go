package regions_test

import (
	"context"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
)

func ExampleEmbedded() {
	store := regions.NewEmbedded(0, time.Now)
	meter := counters.NewMeter("per_ip", counters.SlidingWindow, time.Minute)
	slot := counters.Slot{Meter: &meter, Key: 7, Index: meter.Index(time.Now().UnixNano()), Birth: 1}

	amsterdam, berlin := slot, slot
	amsterdam.Origin, amsterdam.Count = 1, 30
	berlin.Origin, berlin.Count = 2, 12

	ctx := context.Background()
	for _, written := range []counters.Slot{amsterdam, amsterdam, berlin} { // telling twice is telling once
		merged, err := store.Merge(ctx, []counters.Slot{written}, time.Now().UnixNano())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("origin %d: %d before, %d others\n", written.Origin, merged.Before[0], len(merged.Others))
	}
	// Output:
	// origin 1: 0 before, 0 others
	// origin 1: 30 before, 0 others
	// origin 2: 0 before, 1 others
}

func ExampleReconciler() {
	store := regions.NewEmbedded(0, time.Now) // the region's; Redis in a cluster
	meter := counters.NewMeter("per_ip", counters.SlidingWindow, time.Minute)
	now := time.Now().UnixNano()
	limit, err := counters.NewLimit(meter, 100)
	if err != nil {
		fmt.Println(err)
		return
	}

	cfg := regions.DefaultConfig()
	tab := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	r, err := regions.NewReconciler(cfg, store, tab)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 30 {
		tab.Take(limit, 7, 1, now)
	}
	r.Enqueue(tab.DrainDirty(now).Slots) // a node does so every T

	ctx, stop := context.WithCancel(context.Background())
	stop() // at once: Run flushes once more before it returns
	if err := r.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}

	restarted := counters.NewTable(counters.Config{Origin: 2, Memory: counters.MinMemory})
	r, err = regions.NewReconciler(cfg, store, restarted)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Warm(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("admitted before the restart:", restarted.View(limit, 7, now))
	// Output: admitted before the restart: 30
}
