package sim

import (
	"strings"
	"testing"
	"time"
)

func TestParseNodeFault(t *testing.T) {
	const second = time.Second
	for text, want := range map[string]NodeFault{
		"owner/2@10s-20s":      {Kind: OwnerDown, Region: 2, From: 10 * second, Until: 20 * second},
		"two-owners@0s-250ms":  {Kind: TwoOwners, Until: 250 * time.Millisecond},
		"gateways/1@1m-2m":     {Kind: GatewaysDown, Region: 1, From: time.Minute, Until: 2 * time.Minute},
		"rolling/30@1.5s-1m1s": {Kind: Rolling, Region: 30, From: 1500 * time.Millisecond, Until: 61 * second},
	} {
		got, err := ParseNodeFault(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := ParseNodeFault(got.String()); err != nil || again != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	for text, want := range map[string]string{
		"owner": "no time", "odd@1s-2s": `"odd" is none of [owner`, "owner@1s": "no end of the time",
		"owner/0@1s-2s": "no number", "rolling/x@1s-2s": "no number", "owner@x-1s": "beginning", "": "no time",
	} {
		if _, err := ParseNodeFault(text); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "want e.g.") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// large are the default options for a few seconds of 30 nodes in 6 regions, where owners add up.
func large(change func(*Options)) Options {
	o := DefaultOptions()
	o.Regions, o.Nodes, o.Limit, o.Window, o.Duration = 6, 5, 300, 3*time.Second, 9*time.Second
	if change != nil {
		change(&o)
	}
	return o
}

// Each fault of nodes befalls those that it is about, for as long as it lasts, and what it did ends with it.
func TestNodeFaultsAct(t *testing.T) {
	for _, test := range []struct {
		fault  string
		during func(c *cluster, region []*node) bool
	}{
		{"owner/2@2s-5s", func(c *cluster, region []*node) bool { return down(region) == 1 && down(c.nodes) == 1 }},
		{"two-owners/2@2s-5s", func(c *cluster, region []*node) bool {
			owners := 0
			for _, n := range region {
				if n.owned.Has(c.keys[0].Partition()) {
					owners++
				}
			}
			return owners == 2 && down(c.nodes) == 0
		}},
		{"gateways/2@2s-5s", func(c *cluster, region []*node) bool {
			return down(region) == gatewaysPerRegion && down(c.nodes) == gatewaysPerRegion &&
				c.apart(region[0], c.nodes[0]) && !c.apart(region[0], region[1])
		}},
		{"rolling/2@3500ms-8s",
			func(c *cluster, region []*node) bool { return down(region) == 1 && region[0].stopping }},
	} {
		t.Run(test.fault, func(t *testing.T) {
			fault, err := ParseNodeFault(test.fault)
			if err != nil {
				t.Fatal(err)
			}
			o := large(func(o *Options) { o.NodeFaults = []NodeFault{fault} })
			c, err := newCluster(o, noHooks())
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			boots, region := c.boots, c.nodes[o.Nodes:2*o.Nodes]
			c.runTo(c.startAt + int64(4500*time.Millisecond))
			if !test.during(c, region) {
				t.Errorf("it does not show: %d nodes of the region are down, of all %d", down(region), down(c.nodes))
			}
			c.runTo(c.faultsEnd() + int64(3*time.Second))
			owners := 0
			for _, n := range region {
				if n.owned.Has(c.keys[0].Partition()) {
					owners++
				}
				if len(n.members) != o.Total()-1 {
					t.Errorf("node %d has %d members after it", n.place, len(n.members))
				}
			}
			if owners != 1 || down(c.nodes) > 0 {
				t.Errorf("%d owners and %d nodes down after it", owners, down(c.nodes))
			}
			if restarts := c.boots - boots; (fault.Kind == TwoOwners) != (restarts == 0) {
				t.Errorf("%d restarts", restarts)
			}
		})
	}
}

func down(nodes []*node) (n int) {
	for _, node := range nodes {
		if !node.up {
			n++
		}
	}
	return n
}
