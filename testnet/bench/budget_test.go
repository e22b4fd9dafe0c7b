package main

import (
	"errors"
	"testing"
)

func TestMostThatFit(t *testing.T) {
	for _, most := range []int{0, 1, 255, 256, 12_345, 999_999} {
		tries := 0
		got, err := mostThatFit(1_000_000, 128, func(n int) (bool, error) { tries++; return n <= most, nil })
		if err != nil || got > most || got < most-max(1, most/64) || tries > 21 {
			t.Errorf("%d of %d after %d tries, %v", got, most, tries, err)
		}
	}
	broken := errors.New("broken")
	if _, err := mostThatFit(10, 128, func(int) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

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
		if b.InUse*float64(b.Keys) > 4<<20 || b.Keys < 500 || b.Bytes < leastSlot {
			t.Errorf("%+v", b)
		}
	}
}
