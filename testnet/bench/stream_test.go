package main

import (
	"testing"

	"github.com/dchest/siphash"
)

func TestStream(t *testing.T) {
	s := newStream([]uint32{0, 1, 1, 1 << 31})
	if s.len() != 4 || s.identity(0) != "0.0.0.0" || s.identity(1) != "158.55.121.177" ||
		s.identity(2) != s.identity(1) || s.keys[2] != s.keys[1] {
		t.Errorf("%d: %q %q %q", s.len(), s.identity(0), s.identity(1), s.identity(2))
	}
	want := siphash.Hash(secret0, secret1, []byte("\x070.0.0.0"))
	if s.keys[0] != want {
		t.Errorf("key %x, want %x", s.keys[0], want)
	}
	if n := testing.AllocsPerRun(100, func() { hashIdentity(s.identity(3)) }); n != 0 {
		t.Errorf("hashing allocates %v", n)
	}
}

// The cold workloads draw from the same million clients, and Zipf's are skewed.
func TestDraws(t *testing.T) {
	const n = 100_000
	for name, draw := range map[string]func(int) []uint32{"uniform": uniform, "zipf": zipf} {
		counts, most := map[uint32]int{}, 0
		for _, c := range draw(n) {
			if c >= million {
				t.Fatalf("%s: client %d", name, c)
			}
			counts[c]++
			most = max(most, counts[c])
		}
		if busy := most > n/100; busy != (name == "zipf") {
			t.Errorf("%s: the busiest of %d clients has %d requests", name, len(counts), most)
		}
	}
	for _, c := range some(1) {
		if c/1024 != 1 {
			t.Fatalf("client %d is another core's", c)
		}
	}
}

// The bare table limits.
func TestBareTable(t *testing.T) {
	for _, s := range []*state{stateHot, stateDenied} {
		l, err := openBare(s)
		if err != nil {
			t.Fatal(err)
		}
		requests := newStream(hot())
		want := requests.len()
		if s.limited {
			want = 1
		}
		if got := l.take(requests, 0, requests.len()); got != want {
			t.Errorf("%s: admitted %d of %d, want %d", s.name, got, requests.len(), want)
		}
	}
	bare := &bareTable{max: 1}
	for i := range bare.shards {
		bare.shards[i].cells = make([]bareCell, 4)
	}
	for i, at := range []int64{0, bareWindow - 1, bareWindow, 2*bareWindow - 1, 3 * bareWindow} {
		if got, want := bare.takeKey(7, 10*bareWindow+at), i == 0 || i == 3 || i == 4; got != want {
			t.Errorf("after %d ns: %v, want %v", at, got, want)
		}
	}
}
