package main

import "testing"

// What is said to fit into a budget is near to what the table says is in use of it.
func TestBudgets(t *testing.T) {
	all, err := budgets(t.Context(), []int{4}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(budgetLines) {
		t.Errorf("%d lines, want %d", len(all), len(budgetLines))
	}
	for _, b := range all {
		if b.InUse*float64(b.Keys) > 4<<20 || b.Keys < 500 || b.Bytes < 12 {
			t.Errorf("%+v", b)
		}
	}
}
