package netem_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// sink is a transport that counts the packets which reach it.
type sink struct {
	memberlist.NodeAwareTransport
	packets atomic.Int64
}

func (s *sink) WriteToAddress([]byte, memberlist.Address) (time.Time, error) {
	s.packets.Add(1)
	return time.Now(), nil
}

func (s *sink) Shutdown() error { return nil }

func send(t *testing.T, tr memberlist.NodeAwareTransport, count int) {
	t.Helper()
	for range count {
		if _, err := tr.WriteToAddress([]byte("x"), memberlist.Address{Addr: "192.0.2.1:7947"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLANIsLeftAlone(t *testing.T) {
	s := new(sink)
	if got := (netem.Link{Loss: 1}).OnWAN(1)("lan", s); got != memberlist.NodeAwareTransport(s) {
		t.Errorf("the LAN's transport is wrapped: %T", got)
	}
}

func TestDelayAndJitter(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		s := new(sink)
		tr := netem.Link{Latency: 40 * time.Millisecond, Jitter: 10 * time.Millisecond}.OnWAN(1)("wan", s)
		send(t, tr, 100)
		time.Sleep(40*time.Millisecond - 1)
		synctest.Wait()
		if n := s.packets.Load(); n != 0 {
			t.Errorf("%d packets are there before the delay is over", n)
		}
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if n := s.packets.Load(); n < 20 || n > 80 {
			t.Errorf("%d of 100 packets are there half way through the jitter", n)
		}
		time.Sleep(5*time.Millisecond + 1)
		synctest.Wait()
		if n := s.packets.Load(); n != 100 {
			t.Errorf("%d of 100 packets arrived", n)
		}
		_ = tr.Shutdown()
	})
}

func TestLoss(t *testing.T) {
	for loss, want := range map[float64][2]int64{0: {1000, 1000}, 0.3: {620, 780}, 1: {0, 0}} {
		s := new(sink)
		send(t, netem.Link{Loss: loss}.OnWAN(7)("wan", s), 1000)
		if n := s.packets.Load(); n < want[0] || n > want[1] {
			t.Errorf("loss %v: %d of 1000 arrived, want %v", loss, n, want)
		}
	}
}
