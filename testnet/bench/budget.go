package main

import "io"

// budget is how much of a table's memory a key takes.
type budget struct {
	Name  string  `json:"name"`
	MiB   int     `json:"mib"`
	Keys  int     `json:"keys"`  // held before the first eviction
	Bytes float64 `json:"bytes"` // the budget over the keys; for remote slots, what is left of it over the slots
}

// The names of the lines that are about remote slots.
const (
	nameDense  = "remote slot, 12 origins in all sub-windows"
	nameSparse = "remote slot, one a key"
)

func budgets(io.Writer) ([]budget, error) { return nil, nil }
