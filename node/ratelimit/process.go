package ratelimit

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
)

// responseTime is the statistic of the times of gRPC requests.
const responseTime = "ratelimit_server.ShouldRateLimit.response_time"

// durations count durations in whole milliseconds: 0, 1, 2 and 3, 4 to 7, and so on.
type durations [32]atomic.Uint64

func (d *durations) add(t time.Duration) {
	ms := uint64(max(t, 0) / time.Millisecond)
	d[min(bits.Len64(ms), len(d)-1)].Add(1)
}

// Took counts how long a gRPC request took.
func (s *Stats) Took(t time.Duration) { s.took.add(t) }

// Times calls f with how many requests took so many milliseconds, rounded down to a power of two.
func (s *Stats) Times(f func(name string, ms int64, total uint64)) {
	for i := range s.took {
		ms := int64(0)
		if i > 0 {
			ms = 1 << (i - 1)
		}
		if total := s.took[i].Load(); total > 0 {
			f(responseTime, ms, total)
		}
	}
}

// EachOfProcess calls counter and gauge with the statistics of Go's runtime that envoyproxy/ratelimit sends to statsd.
func EachOfProcess(counter, gauge func(name string, value uint64)) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	const prefix = "ratelimit.go."
	counter(prefix+"frees", m.Frees)
	counter(prefix+"mallocs", m.Mallocs)
	counter(prefix+"numGC", uint64(m.NumGC))
	counter(prefix+"pauseTotalNs", m.PauseTotalNs)
	counter(prefix+"totalAlloc", m.TotalAlloc)
	gauge(prefix+"alloc", m.Alloc)
	gauge(prefix+"gcCPUPercent", uint64(m.GCCPUFraction*100))
	gauge(prefix+"heapAlloc", m.HeapAlloc)
	gauge(prefix+"heapIdle", m.HeapIdle)
	gauge(prefix+"heapInuse", m.HeapInuse)
	gauge(prefix+"heapObjects", m.HeapObjects)
	gauge(prefix+"heapReleased", m.HeapReleased)
	gauge(prefix+"heapSys", m.HeapSys)
	gauge(prefix+"lastGC", m.LastGC)
	gauge(prefix+"nextGC", m.NextGC)
	gauge(prefix+"numGoroutine", uint64(runtime.NumGoroutine()))
	gauge(prefix+"sys", m.Sys)
}
