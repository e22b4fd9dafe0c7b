package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// harmless is a testnet whose faults do nothing. It notes them, and fails with the error of its last one.
type harmless struct {
	did  []string
	fail string
}

func (h *harmless) do(what string) error {
	h.did = append(h.did, what)
	if what == h.fail {
		return errors.New(what + " failed")
	}
	return nil
}

func (h *harmless) Partition(_ context.Context, region string, _ cluster.Direction) error {
	return h.do("partition " + region)
}
func (h *harmless) Heal(context.Context) error                    { return h.do("heal") }
func (h *harmless) Pause(_ context.Context, name string) error    { return h.do("pause " + name) }
func (h *harmless) Unpause(_ context.Context, name string) error  { return h.do("unpause " + name) }
func (h *harmless) Nodes(context.Context) ([]cluster.Node, error) { return nil, h.do("nodes") }

// Proxies that no fault reaches admit payments: the check says so, and whatever it did is healed.
func TestOutageFinds(t *testing.T) {
	urls := proxies(t, false, "compose/rules")
	for fail, want := range map[string]string{
		"":                    "cut off: " + urls[0] + " admits [30 30 30] of 31 requests to [/pay /feed /page]",
		"pause eu-west-redis": "pause eu-west-redis failed", "partition eu-west": "partition eu-west failed",
	} {
		h := &harmless{fail: fail}
		o := outage{h, "eu-west", urls[0], urls[1], time.Millisecond, time.Now().UnixNano()}
		if _, err := o.play(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if n := len(h.did); n < 3 || !slices.Equal(h.did[n-2:], []string{"unpause eu-west-redis", "heal"}) {
			t.Errorf("it leaves the testnet after %q", h.did)
		}
	}
}

func TestOutageWantsProxies(t *testing.T) {
	e := withRedis()
	if _, err := invoke(t, e, "outage", "eu-west"); !errors.Is(err, cluster.ErrNotUp) {
		t.Errorf("error %v", err)
	}
	e.add("eu-west-1", "node", "eu-west", "running", "}")
	if _, err := invoke(t, e, "outage", "eu-west"); err == nil || !strings.Contains(err.Error(), "--with sidecar") {
		t.Errorf("error %v", err)
	}
}
