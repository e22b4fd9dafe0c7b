package main

import "testing"

// The keys in use do not exceed the budget.
func TestBudgets(t *testing.T) {
	all, err := budgets(t.Context(), []int{4}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(budgetLines) {
		t.Errorf("%d lines, want %d", len(all), len(budgetLines))
	}
	for _, b := range all {
		if b.inUse*float64(b.keys) > 4<<20 || b.keys < 500 || b.bytes < 12 {
			t.Errorf("%+v", b)
		}
	}
}
