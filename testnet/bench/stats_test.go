package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{3, 100, 1}, 3}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		before := slices.Clone(c.values)
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Errorf("median changed its argument to %v", c.values)
		}
	}
}

// Buckets follow each other without gaps, and none is wider than 1/32 of its durations.
func TestHistogramBuckets(t *testing.T) {
	for b := range len(histogram{}.buckets) - 1 {
		end := bucketEnd(b)
		if bucketOf(end) != b || bucketOf(end+1) != b+1 {
			t.Fatalf("bucket %d ends at %d, but %d is in %d and %d in %d", b, end, end, bucketOf(end), end+1, bucketOf(end+1))
		}
		if b > 0 {
			if width := end - bucketEnd(b-1); width > 1 && width*histogramSteps > end {
				t.Fatalf("bucket %d is %d wide at %d", b, width, end)
			}
		}
	}
	if last := len(histogram{}.buckets) - 1; bucketOf(1<<63) != last {
		t.Errorf("the longest of durations is in bucket %d, want %d", bucketOf(1<<63), last)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var h histogram
	all := make([]time.Duration, 10_000)
	for i := range all {
		all[i] = time.Duration(r.ExpFloat64() * 1e5)
		h.add(all[i])
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := all[min(int(q*float64(len(all))+0.5), len(all))-1]
		if got := h.quantile(q); got < exact || float64(got) > float64(exact)*(1+1.0/histogramSteps)+1 {
			t.Errorf("quantile(%v) = %v, exactly %v", q, got, exact)
		}
	}
	if h.longest != all[len(all)-1] || h.count != 10_000 {
		t.Errorf("longest %v of %d, want %v of 10000", h.longest, h.count, all[len(all)-1])
	}
	if got := new(histogram).quantile(0.99); got != 0 {
		t.Errorf("a quantile of nothing is %v", got)
	}
}
