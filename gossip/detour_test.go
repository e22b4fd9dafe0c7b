package gossip

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/netem"
)

// blocks loses all packets from one region to another, or lets them pass again.
func (l *testCluster) blocks(from, to string, all bool) {
	far := netem.Link{Latency: 40 * time.Millisecond, Jitter: 10 * time.Millisecond}
	if all {
		far.Loss = 1
	}
	l.links.Set(from, to, far)
}

// blockedTo returns which ways a node takes for blocked to each node of another region.
func (l *testCluster) blockedTo(name string) (all []Blocked) {
	for _, p := range l.nodes[name].Peers() {
		if p.OtherRegion {
			all = append(all, p.Blocked)
		}
	}
	return all
}

// takesForBlocked says whether a node takes other ways than these for blocked, to a node of the other region.
func (l *testCluster) takesForBlocked(name string, want Blocked) func() string {
	return func() string {
		for _, got := range l.blockedTo(name) {
			if got != want {
				return fmt.Sprintf("%s takes %+v for blocked, want %+v", name, got, want)
			}
		}
		return ""
	}
}

// Where packets are blocked and streams are not, counts go over streams: nobody is out of reach for a moment, and both
// sides say which way is blocked.
func TestBlockedPackets(t *testing.T) {
	for _, test := range []struct {
		name           string
		to, from       bool // of east, from and to west
		atEast, atWest Blocked
	}{
		{"to west", true, false, Blocked{UDPTo: true}, Blocked{UDPFrom: true}},
		{"from west", false, true, Blocked{UDPFrom: true}, Blocked{UDPTo: true}},
		{"both ways", true, true, Blocked{UDPTo: true, UDPFrom: true}, Blocked{UDPTo: true, UDPFrom: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestCluster(t)
				names := []string{"east/n1", "east/n2", "west/n1", "west/n2"}
				for _, name := range names {
					l.start(name)
				}
				l.within(20*time.Second, "all meet", l.sees(names...))
				time.Sleep(3 * time.Second)
				if test.to {
					l.blocks("east", "west", true)
				}
				if test.from {
					l.blocks("west", "east", true)
				}
				var taken [2]uint64 // by side
				begun := time.Now()
				for time.Since(begun) < 50*time.Second {
					l.take("east/n1", 1)
					l.take("west/n2", 2)
					taken = [2]uint64{taken[0] + 1, taken[1] + 2}
					time.Sleep(100 * time.Millisecond)
					for _, name := range names {
						for _, p := range l.nodes[name].Peers() {
							if p.Age > MostSilence(DefaultInterval) || p.Pool == "" {
								t.Fatalf("after %v, %s does not reach %s/%s for %v", time.Since(begun), name,
									p.Region, p.NodeID, p.Age)
							}
						}
						// What was taken in the last second may be under way: 10 and 20.
						if got := l.view(name); time.Since(begun) > 4*time.Second && got+30 < taken[0]+taken[1] {
							t.Fatalf("after %v, %s counts %d of %d", time.Since(begun), name, got, taken[0]+taken[1])
						}
					}
					if time.Since(begun) > 10*time.Second {
						for name, want := range map[string]Blocked{"east/n1": test.atEast, "west/n2": test.atWest} {
							if missing := l.takesForBlocked(name, want)(); missing != "" {
								t.Fatalf("after %v: %s", time.Since(begun), missing)
							}
						}
					}
				}
				l.blocks("east", "west", false)
				l.blocks("west", "east", false)
				for _, name := range names {
					l.within(10*time.Second, "packets pass again", l.takesForBlocked(name, Blocked{}))
				}
				time.Sleep(5 * time.Second)
				for name, n := range l.nodes {
					n.outbox.mu.Lock()
					for _, q := range n.outbox.detours {
						if q.busy || len(q.frames) > 0 {
							t.Errorf("%s still sends over streams", name)
						}
					}
					n.outbox.mu.Unlock()
				}
				// What was taken first has left the window.
				l.within(3*time.Second, "all count the same", l.counts(l.view("east/n1"), names...))
			})
		})
	}
}

// Streams that are blocked while packets pass are noticed, on the side that cannot open them.
func TestBlockedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestCluster(t)
		names := []string{"east/n1", "west/n1"}
		for _, name := range names {
			l.start(name)
		}
		l.within(20*time.Second, "all meet", l.sees(names...))
		l.links.BlockStreams("east", "west")
		l.within(time.Minute, "it is noticed", l.takesForBlocked("east/n1", Blocked{TCPTo: true}))
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if missing := l.takesForBlocked("east/n1", Blocked{TCPTo: true})(); missing != "" {
				t.Fatal(missing)
			}
			if missing := l.takesForBlocked("west/n1", Blocked{})(); missing != "" {
				t.Fatal(missing)
			}
		}
		l.links.Heal()
		l.within(10*time.Second, "streams pass again", l.takesForBlocked("east/n1", Blocked{}))
	})
}

// ended returns which peers' processes a node knows to have ended.
func (l *testCluster) ended(name string) (all []string) {
	for _, p := range l.nodes[name].Peers() {
		if p.Ended {
			all = append(all, p.Region+"/"+p.NodeID)
		}
	}
	return all
}

// A crash is known before the node counts as unreachable, as its host refuses streams. A partition is none, and a node
// that is back has not ended.
func TestAnEndedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestCluster(t)
		names := []string{"east/n1", "east/n2", "west/n1"}
		for _, name := range names {
			l.start(name)
		}
		l.within(20*time.Second, "all meet", l.sees(names...))
		time.Sleep(3 * time.Second)
		l.links.Partition("west")
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			for _, name := range names {
				if got := l.ended(name); len(got) > 0 {
					t.Fatalf("%s takes %v for ended, in a partition", name, got)
				}
			}
		}
		l.links.Heal()
		l.within(20*time.Second, "all meet again", l.sees(names...))
		time.Sleep(3 * time.Second)
		l.kill("east/n2")
		for _, name := range []string{"east/n1", "west/n1"} {
			took := l.within(3*time.Second, "the crash is known", func() string {
				if got := l.ended(name); len(got) != 1 || got[0] != "east/n2" {
					return fmt.Sprintf("%s takes %v for ended", name, got)
				}
				return ""
			})
			t.Logf("%s knew it after %v", name, took)
		}
		for range 1200 { // also after it is no member any more
			time.Sleep(100 * time.Millisecond)
			if got := l.ended("west/n1"); len(got) != 1 {
				t.Fatalf("it knows no longer: %v", got)
			}
		}
		l.start("east/n2")
		l.within(10*time.Second, "all meet a third time", l.sees(names...))
		if got := l.ended("west/n1"); len(got) > 0 {
			t.Errorf("%v are taken for ended", got)
		}
	})
}
