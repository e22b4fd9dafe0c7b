//go:build unix

package respapi

import (
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// BenchmarkServed measures what a decision costs beside all that a server does for any command. The bare server is this
// one, with a command that answers five constant integers. redis-benchmark asks, with 64 connections; what is reported
// is this process' own time on the processor, for each command.
func BenchmarkServed(b *testing.B) {
	commands["bare.throttle"] = command{5, 6, 0, func(c *session, _ [][]byte) outcome {
		c.array(5)
		for _, n := range [...]int64{0, 16, 15, -1, 2} {
			c.integer(n)
		}
		return other
	}}
	defer delete(commands, "bare.throttle")
	for _, depth := range []int{1, 16} {
		for _, name := range []string{"BARE.THROTTLE", "CL.THROTTLE"} {
			b.Run(fmt.Sprintf("%s/pipelined %d", name, depth), func(b *testing.B) {
				s := serve(b, ticking{newBank()}, quiet())
				_, port, _ := net.SplitHostPort(s.addr)
				before := processorTime(b)
				out, err := exec.CommandContext(b.Context(), "redis-benchmark", "-p", port, "-c", "64", "-P",
					fmt.Sprint(depth), "-n", fmt.Sprint(b.N),
					"-r", "10000", "-q", name, "user:__rand_int__", "999999", "30", "60").
					CombinedOutput()
				if err != nil {
					b.Fatalf("redis-benchmark: %v: %s", err, out)
				}
				if got := s.Stats(); got.Allowed+got.Other < uint64(b.N) || got.Denied > 0 {
					b.Fatalf("%d commands, %+v", b.N, got)
				}
				b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/command")
			})
		}
	}
}

// ticking is a bank whose clock goes on with each request.
type ticking struct{ *bank }

func (r ticking) TakeDebt(identity []byte, charge, capacity time.Duration) counters.Decision {
	r.now.Add(int64(time.Microsecond))
	return r.bank.TakeDebt(identity, charge, capacity)
}

// processorTime is what the process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	testkit.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkAnswer measures what the server does for a command that has been read, without sockets.
func BenchmarkAnswer(b *testing.B) {
	for _, l := range []struct {
		name    string
		limiter Limiter
	}{{"fixed", fixed(counters.Decision{Allowed: true, ResetAfter: 2 * time.Second})}, {"table",
		ticking{newBank()}}} {
		b.Run(l.name, func(b *testing.B) {
			said := array("CL.THROTTLE", "user123", "999999", "30", "60")
			c := newSession(New(l.limiter, quiet()), &script{})
			before := processorTime(b)
			b.ReportAllocs()
			for b.Loop() {
				c.begin, c.end = 0, copy(c.in, said)
				if !c.execute() {
					b.Fatal("it did not answer")
				}
				c.out = c.out[:0]
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/command")
		})
	}
}
