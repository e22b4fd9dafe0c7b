package plan

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.01*math.Abs(want)+1e-9 {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

func TestMessagesOfALink(t *testing.T) {
	l := MixedLoad(3, 20)
	l.Loss = 0
	m := &model{Load: &l}
	flow := func(slots float64) sim.Flow { return sim.Flow{Slots: slots, Bytes: 9 * slots} }
	messages, bytes := m.messages(link{used: 1})
	near(t, "an idle link's messages", messages, 1)
	near(t, "an idle link's bytes", bytes, packetBytes+frameBytes)
	messages, bytes = m.messages(link{out: flow(100), in: flow(100), groups: 1, used: 1})
	near(t, "a busy link's messages", messages, 10)
	near(t, "a busy link's bytes", bytes, 10*(packetBytes+frameBytes+groupBytes)+900)
	messages, _ = m.messages(link{out: flow(10_000), in: flow(0), groups: 1, used: 1}) // 9 kB an interval
	if messages < 10*(9000+groupBytes)/float64(roomBytes) || messages > 90 {
		t.Errorf("a full link's messages: %g, want as many as 9 kB need", messages)
	}
	messages, _ = m.messages(link{out: flow(50), in: flow(50), groups: 1, used: 0.5})
	near(t, "messages where half of the links are used", messages, (10+1)/2.)
	messages, _ = m.messages(link{})
	near(t, "messages of links without keys", messages, 1)
}

func TestHeadroom(t *testing.T) {
	near(t, "headroom", headroom(func(f float64) float64 { return 4 * f }, 10), 2.5)
	near(t, "what never grows", headroom(func(float64) float64 { return 4 }, 10), maxHeadroom)
	near(t, "what is never enough", headroom(func(float64) float64 { return 11 }, 10), 0)
}

// A window longer than what is simulated keeps new keys for longer.
func TestLongWindows(t *testing.T) {
	l := MixedLoad(3, 20)
	l.New, l.Window = 100, time.Minute
	m := &model{&l, &sim.Sample{Window: 20 * time.Second}}
	near(t, "bytes", m.unsimulated(2), 100*(40+4+10)*cellBytes*2)
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 0.014: "0.01", 0.25: "0.2", 9.96: "10.0", 12.4: "12", 1234567.8: "1,234,568", 100: "100",
	} {
		if got := Figure(v); got != want {
			t.Errorf("%g is %q, want %q", v, got, want)
		}
	}
}
