package strict

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// serverCPU is the processor time that the server has used.
func serverCPU(b *testing.B, s *regionstest.Server) (used time.Duration) {
	b.Helper()
	for line := range strings.Lines(s.Do("INFO", "cpu")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			testkit.Must(b, err)
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used
}

// What a check costs the server and the node, by algorithm; calls one by one, and in pipelines.
func BenchmarkTake(b *testing.B) {
	for _, pipelined := range []bool{false, true} {
		for _, a := range algorithms {
			for _, lease := range []uint64{0, 20} {
				if lease > 0 && pipelined {
					continue
				}
				name := fmt.Sprintf("%v/lease=%d/pipelined=%v", a, lease, pipelined)
				b.Run(name, func(b *testing.B) {
					benchmarkTake(b, a, lease, pipelined)
				})
			}
		}
	}
}

func benchmarkTake(b *testing.B, a counters.Algorithm, lease uint64, pipelined bool) {
	server := regionstest.StartRedis(b)
	s := open(b, single(server))
	if !pipelined {
		l := s.link.Load()
		l.pipe.close()
		l.pipe = nil
	}
	limit := newLimit(b, a, counters.MaxLog, time.Minute)
	before := serverCPU(b, server)
	b.ReportAllocs()
	b.SetParallelism(32)
	var n atomic.Uint64
	b.RunParallel(func(p *testing.PB) {
		var ds []counters.Decision
		for p.Next() {
			asks := ask(limit, counters.Key(n.Add(1)%100), 1)
			asks[0].Lease = lease
			var err error
			if ds, _, err = s.Take(b.Context(), asks, ds[:0]); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(serverCPU(b, server)-before)/float64(b.N), "server-ns/op")
}
