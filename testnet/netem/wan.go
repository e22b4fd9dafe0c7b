package netem

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// WAN is the network emulation of what a node sends over the WAN pool. The zero value does nothing.
//
// Loss applies to packets only. A stream takes a round trip to open, and is then as fast as the machine.
type WAN struct {
	// Delay is the one-way delay of everything that is sent.
	Delay time.Duration
	// Jitter is the maximum that is added to Delay; each packet draws its own share, evenly.
	Jitter time.Duration
	// Loss is the probability, 0 to 1, that a packet vanishes.
	Loss float64
}

// IsZero reports whether the emulation does nothing.
func (w WAN) IsZero() bool { return w == WAN{} }

// Validate reports all problems at once: negative durations, a probability outside [0, 1].
func (w WAN) Validate() error {
	var errs []error
	if w.Delay < 0 {
		errs = append(errs, fmt.Errorf("WAN delay is %v, give a duration of 0 or more", w.Delay))
	}
	if w.Jitter < 0 {
		errs = append(errs, fmt.Errorf("WAN jitter is %v, give a duration of 0 or more", w.Jitter))
	}
	if !(w.Loss >= 0 && w.Loss <= 1) { // NaN too
		errs = append(errs, fmt.Errorf("WAN loss is %v, give a probability from 0 to 1", w.Loss))
	}
	return errors.Join(errs...)
}

// Transport returns a wrapper for node.Config.WrapTransport, with random draws from the seed. It panics on a WAN that
// does not Validate.
func (w WAN) Transport(seed uint64) func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
	const self = "self"
	links := NewLinks(seed)
	links.Register(self, self) // all other addresses are unknown to links, and so in a group of their own
	links.SetDefaults(Link{}, Link{Latency: w.Delay, Jitter: w.Jitter, Loss: w.Loss})
	return func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		if pool != "wan" {
			return t
		}
		return Wrap(t, self, links)
	}
}
