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
	Keys  int     `json:"keys"`  // held by the full table; for remote slots, that have some
	Bytes float64 `json:"bytes"` // of the budget a key; for remote slots, by which what is in use grows with each
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

// leastCell is less than a cell takes, in bytes.
const leastCell = 48

// budgets measures what a key takes of a full table, and what a remote slot does.
func budgets(ctx context.Context, sizes []int, progress io.Writer) ([]budget, error) {
	var all []budget
	for i, size := range sizes {
		for _, line := range budgetLines {
			v, ok := variantNamed(line.variant)
			if !ok || i > 0 && line.origins > 0 {
				continue // a remote slot takes the same of any budget
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "how many fit into %d MiB: %s\n", size, line.name)
			e, err := newEngine(v, v.max, size<<20, askGiven, 0)
			if err != nil {
				return nil, err
			}
			b := budget{Name: line.name, MiB: size}
			if line.origins > 0 {
				b.Keys, b.Bytes = e.growth(line.origins, line.dense)
				b.InUse = b.Bytes
			} else {
				b.Keys, b.InUse = e.full(size << 20)
				b.Bytes = float64(size<<20) / float64(b.Keys)
			}
			all = append(all, b)
		}
	}
	return all, nil
}
