package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// The children are this program: of the test, the test's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every protocol is spoken by node and bare server, both use time for it, and the report says how much.
func TestEveryDoorIsMeasured(t *testing.T) {
	r, err := measure(t.Context(), pace{rounds: 2, slice: 50 * time.Millisecond, steady: 100 * time.Millisecond}, "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := r.write(&said); err != nil || len(r.Doors) != len(protocols) {
		t.Fatal(len(r.Doors), err)
	}
	for _, c := range r.Doors {
		if c.Ratio <= 0 || c.Lowest > c.Ratio || c.Highest < c.Ratio || c.NodeNs < 100 || c.BareNs < 100 || c.P99Ms < c.P50Ms || c.MaxMs < c.P99Ms || c.Steady < 1000 {
			t.Errorf("%+v", c)
		}
		if !strings.Contains(said.String(), "| "+c.Protocol+" |") {
			t.Errorf("nothing of %s in\n%s", c.Protocol, said.String())
		}
	}
}

func TestUnknownProtocol(t *testing.T) {
	if _, err := measure(t.Context(), pace{}, "telepathy", io.Discard); err == nil || !strings.Contains(err.Error(), "telepathy") {
		t.Error(err)
	}
	if err := run(t.Context(), []string{"serve", "tea"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "tea") {
		t.Error(err)
	}
}
