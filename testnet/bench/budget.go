package main

import (
	"context"
	"fmt"
	"io"
)

// budget is the memory of a table that a key takes.
type budget struct {
	name  string
	mib   int
	keys  int     // held by the full table; of remote slots: the keys that have some
	bytes float64 // of the budget per key; of remote slots: the growth of inUse per slot
	inUse float64 // per key, by the table's own statistics
}

// budgetOrigins is the number of origins of the remote slots.
const budgetOrigins = 12

// budgetLines are measured: keys alone, and keys with remote slots.
var budgetLines = []struct {
	name    string
	variant string
	origins int  // with a slot of each key
	dense   bool // in each sub-window, otherwise in the last
}{
	{name: nameTwoBuckets, variant: nameTwoBuckets},
	{name: nameTokenBucket, variant: nameTokenBucket},
	{name: nameEngine, variant: nameEngine},
	{name: nameDense, variant: nameEngine, origins: budgetOrigins, dense: true},
	{name: nameSparse, variant: nameEngine, origins: 1},
}

// The names of the lines about remote slots.
const (
	nameDense  = "remote slot, 12 origins in all sub-windows"
	nameSparse = "remote slot, one a key"
)

// minCell is below the size of a cell, in bytes.
const minCell = 48

// budgets measures the memory per key of full tables of some sizes in MiB, and that of remote slots.
func budgets(ctx context.Context, sizes []int, progress io.Writer) (all []budget, err error) {
	for i, size := range sizes {
		for _, line := range budgetLines {
			if i > 0 && line.origins > 0 {
				continue // a remote slot takes the same of any budget
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "memory per key in %d MiB: %s\n", size, line.name)
			e, err := newEngine(variantNamed(line.variant), size<<20, engine{given: true})
			if err != nil {
				return nil, err
			}
			b := budget{name: line.name, mib: size}
			if line.origins > 0 {
				b.keys, b.bytes = e.growth(line.origins, line.dense)
				b.inUse = b.bytes
			} else {
				b.keys, b.inUse = e.full(size << 20)
				b.bytes = float64(size<<20) / float64(b.keys)
			}
			all = append(all, b)
		}
	}
	return all, nil
}
