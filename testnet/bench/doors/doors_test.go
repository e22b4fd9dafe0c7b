package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// The test binary is also the child process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Node and bare server answer every protocol, and the report shows the CPU time and the latencies.
func TestEveryProtocolIsMeasured(t *testing.T) {
	d := duration{rounds: 2, slice: 50 * time.Millisecond, steady: 100 * time.Millisecond}
	r, err := measure(t.Context(), d, "", io.Discard)
	if err != nil || len(r.costs) != len(protocols) {
		t.Fatal(len(r.costs), err)
	}
	text := r.markdown()
	for _, c := range r.costs {
		if c.ratio <= 0 || c.lowest > c.ratio || c.max < c.ratio || c.nodeNS < 100 || c.bareNS < 100 ||
			c.p99MS < c.p50MS || c.worst < c.p99MS || c.leastAddedMS > c.addedMS ||
			c.mostAddedMS < c.addedMS || c.checks < c.protocol.rate/20 {
			t.Errorf("%+v", c)
		}
		goal := strings.Contains(text, fmt.Sprintf("| %.2f to %.2f | 0.5 ms: ", c.leastAddedMS, c.mostAddedMS))
		if goal != (c.protocol.server == "proxy") {
			t.Errorf("%s has a goal for what it adds: %v\n%s", c.protocol.name, goal, text)
		}
		if strings.Count(text, "| "+c.protocol.name+" |") != 2 {
			t.Errorf("%s is not in both tables:\n%s", c.protocol.name, text)
		}
	}
}

func TestUnknownProtocol(t *testing.T) {
	if _, err := measure(t.Context(), duration{}, "telepathy", io.Discard); err == nil ||
		!strings.Contains(err.Error(), "telepathy") {
		t.Error(err)
	}
	if err := serve(t.Context(), "tea", "", strings.NewReader(""), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "tea") {
		t.Error(err)
	}
}
