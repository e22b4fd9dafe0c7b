package main

import (
	"context"
	"fmt"
	"io"
)

// budget is how much of a table's memory a key takes.
type budget struct {
	Name  string  `json:"name"`
	MiB   int     `json:"mib"`
	Keys  int     `json:"keys"`  // the most that are held without an eviction
	Bytes float64 `json:"bytes"` // the budget over the keys; for remote slots, what they leave of it over the slots
	InUse float64 `json:"bytes_in_use"`
}

// Remote slots are measured with so many origins.
const budgetOrigins = 12

// budgetLines are what is measured, the key alone before the same with remote slots.
var budgetLines = []struct {
	name    string
	variant string
	origins int  // that tell a slot of each key
	dense   bool // in each sub-window, otherwise in the last
}{
	{name: nameTwoBuckets, variant: nameTwoBuckets},
	{name: nameTokenBucket, variant: nameTokenBucket},
	{name: nameEngine, variant: nameEngine},
	{name: nameDense, variant: nameEngine, origins: budgetOrigins, dense: true},
	{name: nameSparse, variant: nameEngine, origins: 1},
}

// The names of the lines that are about remote slots.
const (
	nameDense  = "remote slot, 12 origins in all sub-windows"
	nameSparse = "remote slot, one a key"
)

// Less than a cell and a remote slot can take, in bytes: where the search begins.
const (
	leastCell = 48
	leastSlot = 12
)

// budgets measures how many keys fit into a budget.
func budgets(ctx context.Context, sizes []int, progress io.Writer) ([]budget, error) {
	var all []budget
	for i, size := range sizes {
		alone := map[string]float64{} // bytes a key without remote slots
		for _, line := range budgetLines {
			v, ok := variantNamed(line.variant)
			if !ok || i > 0 && line.origins > 0 {
				continue // remote slots take long to fill in, and the same of any budget
			}
			fmt.Fprintf(progress, "how many fit into %d MiB: %s\n", size, line.name)
			slots, oneIn := line.origins, 1024
			if line.dense {
				slots *= v.meter.SubWindows()
				oneIn = 128 // of two kilobytes, for a hundred slots
			}
			inUse := 0
			keys, err := mostThatFit(size<<20/(leastCell+leastSlot*slots), oneIn, func(keys int) (bool, error) {
				if err := ctx.Err(); err != nil {
					return false, err
				}
				used, fits, err := fitsBudget(v, size<<20, keys, line.origins, line.dense)
				if fits {
					inUse = used
				}
				return fits, err
			})
			if err != nil {
				return nil, err
			}
			b := budget{Name: line.name, MiB: size, Keys: keys, Bytes: float64(size<<20) / float64(keys), InUse: float64(inUse) / float64(keys)}
			if slots == 0 {
				alone[line.variant] = b.Bytes
			} else {
				b.Bytes = (b.Bytes - alone[line.variant]) / float64(slots)
			}
			all = append(all, b)
		}
	}
	return all, nil
}

// mostThatFit returns the largest number that fits, one in so many too low at most: fewer than fewer do.
func mostThatFit(fewer, oneIn int, fits func(int) (bool, error)) (int, error) {
	low, high := 0, fewer
	for high-low > max(1, low/oneIn) {
		try := (low + high) / 2
		ok, err := fits(try)
		if err != nil {
			return 0, err
		}
		if ok {
			low = try
		} else {
			high = try
		}
	}
	return low, nil
}
