package node

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkDashboard is which part of a core ten viewers take of a node with 1000 rules, all of which decided within
// the last minutes: the CPU time of the process while they follow the status, less that of as long without them, in one
// run. The viewers are in the process, and what they take is part of it.
func BenchmarkDashboard(b *testing.B) {
	const viewers, span = 10, 10 * time.Second
	cfg := quiet(manyRules(1000))
	cfg.Admin = "127.0.0.1:0"
	n := launch(b, cfg).ready(b)
	decideOnAll(b, n.Node, 1000)
	n.rates.sample(n.policy.Load())
	used := func() time.Duration {
		before := processorTime(b)
		<-time.After(span)
		return processorTime(b) - before
	}
	without := used()
	for range viewers {
		r, err := http.NewRequestWithContext(b.Context(), "GET", "http://"+n.Addr("admin")+"/api/status", nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }() // until the body is closed
	}
	for b.Loop() { // each is a span
		with := used()
		b.ReportMetric(100*without.Seconds()/span.Seconds(), "%core-without")
		b.ReportMetric(100*(with-without).Seconds()/span.Seconds(), "%core-for-viewers")
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStatus is what one snapshot of such a node costs: one every two seconds, however many viewers there are.
func BenchmarkStatus(b *testing.B) {
	n := idle(b, manyRules(1000))
	decideOnAll(b, n, 1000)
	n.rates.sample(n.policy.Load())
	for b.Loop() {
		n.Status()
	}
}

// BenchmarkRates is what a node without viewers pays for the chart that the first one finds: a sample every 5 s.
func BenchmarkRates(b *testing.B) {
	n := idle(b, manyRules(1000))
	decideOnAll(b, n, 1000)
	for b.Loop() {
		n.rates.sample(n.policy.Load())
	}
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N)/rateStep.Seconds(), "%core")
}

func manyRules(count int) string {
	var text strings.Builder
	text.WriteString("domain: test\ndescriptors:\n")
	for i := range count {
		fmt.Fprintf(&text, "  - {key: k%d, rate_limit: {name: r%d, window: 1h, requests_per_unit: 2}}\n", i, i)
	}
	return text.String()
}

// decideOnAll allows two requests under each rule, and denies two.
func decideOnAll(b *testing.B, n *Node, count int) {
	b.Helper()
	for i := range count {
		for range 4 {
			if _, err := n.Take(b.Context(), Request{Rule: fmt.Sprintf("r%d", i), Identity: "joe"}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
