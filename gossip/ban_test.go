package gossip

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A ban travels as any slot: sent again where a frame was lost, and to the end that it had where it began.
func TestBansTravel(t *testing.T) {
	p := newBanPair(t)
	p.ask(1)
	p.tick(true)
	banned := func() bool { return p.auditor.Take(p.limit, 1, 0, p.now).Banned }
	if banned() {
		t.Fatal("a lost frame is known")
	}
	for range 5 {
		p.tick(false)
	}
	sent, own := p.auditor.Take(p.limit, 1, 0, p.now), p.sender.Take(p.limit, 1, 0, p.now)
	if !banned() || sent.RetryAfter != own.RetryAfter {
		t.Errorf("where it was told: %+v, where it began: %+v", sent, own)
	}
	if p.now += int64(own.RetryAfter) - 1; !banned() {
		t.Error("it ends too early")
	}
	if p.now++; banned() {
		t.Error("it does not end")
	}
}

// A lift reaches a peer to which its frames were lost, as counts do.
func TestLiftsTravel(t *testing.T) {
	p := newBanPair(t)
	p.ask(1)
	for range 5 {
		p.tick(false)
	}
	banned := func() bool { return p.auditor.Take(p.limit, 1, 0, p.now).Banned }
	if !banned() {
		t.Fatal("the ban did not arrive: that shows nothing")
	}
	bans, err := counters.NewBans(*p.limit.BanMeter())
	if err != nil {
		t.Fatal(err)
	}
	if left, kept := p.sender.LiftBan(bans, 1, p.now); left == 0 || !kept {
		t.Fatalf("%v left, kept %v", left, kept)
	}
	if p.tick(true); !banned() {
		t.Fatal("a lost frame is known")
	}
	for range 5 {
		p.tick(false)
	}
	if banned() {
		t.Error("it is banned yet")
	}
}

// What a rule is asked for does not vanish from the bound where its bans are sent as well.
func TestBansHideNoDemand(t *testing.T) {
	p := newBanPair(t)
	limits := map[string]*counters.Limit{"r": p.limit}
	p.receives.Audit(limits, p.now)
	for key := range counters.Key(20) { // a denial, and with it a ban, in every interval
		p.ask(1 + key)
		p.tick(false)
	}
	m, later := p.limit.Meter(), p.now+int64(5*time.Second)
	p.receives.Tick(counters.Drained{Demand: []counters.Demand{{Meter: &m, Rate: 1, Used: 5}}}, later)
	if got := p.receives.Audit(limits, later)["r"]; got != 5 {
		t.Errorf("of a hundred a second %v were unseen for five seconds, want the whole limit", got)
	}
}

// ask takes ten, of which five are denied.
func (p *bucketPair) ask(key counters.Key) {
	for range 10 {
		p.sender.Take(p.limit, key, 1, p.now)
	}
}

// newBanPair is a pair of nodes that share a limit of 5 an hour, with a ban of two.
func newBanPair(t *testing.T) *bucketPair {
	l, err := counters.NewLimit(counters.NewMeter("r", counters.FixedWindow, time.Hour), 5)
	if err == nil {
		l, err = l.With(func(c *counters.LimitConfig) { c.Ban = 2 * time.Hour })
	}
	if err != nil {
		t.Fatal(err)
	}
	p := newBucketPair(t)
	p.limit = l
	p.auditor.Know([]*counters.Limit{l})
	return p
}
