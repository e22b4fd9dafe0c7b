package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// fakeKeys are the key files of a cluster without containers, and who can read whom.
type fakeKeys struct {
	file      []string            // the operator's: by the first, nodes send
	held      map[string][]string // by node
	refused   map[string]int64    // packets, by node
	made      int
	intruders int // that run

	// Flaws.
	lax      bool // every command is accepted at any time
	deaf     bool // a node drops a packet when it reads its keys
	welcomes bool // nodes accept whatever key
}

func (k *fakeKeys) begin(names []string) {
	k.file, k.refused = []string{"k0"}, make(map[string]int64)
	for _, name := range slices.Concat(names, sidecars) {
		k.held[name] = []string{"k0"}
	}
}

// Keys does what edgelimit keys does.
func (f *fakeCluster) Keys(_ context.Context, _ string, args ...string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := &f.keys
	refuse := func(reason string, bad func(held []string) bool) error {
		for name, held := range k.held {
			if !k.lax && name != cluster.Intruder && bad(held) {
				return fmt.Errorf("cannot be done yet: %s %s", name, reason)
			}
		}
		return nil
	}
	switch args[0] {
	case "add":
		k.made++
		k.file = append(k.file, fmt.Sprint("k", k.made))
	case "use":
		if len(k.file) < 2 {
			return "", errors.New("it has one gossip key")
		}
		if err := refuse("does not have it", func(held []string) bool {
			return !slices.Contains(held, k.file[1])
		}); err != nil {
			return "", err
		}
		k.file = []string{k.file[1], k.file[0]}
	case "remove":
		if err := refuse("sends by it", func(held []string) bool { return held[0] == args[2] }); err != nil {
			return "", err
		}
		k.file = slices.DeleteFunc(slices.Clone(k.file), func(key string) bool { return key == args[2] })
	case "status":
		var s struct {
			Nodes []status.KeyHolder `json:"nodes"`
		}
		for name, held := range k.held {
			if name != cluster.Intruder {
				s.Nodes = append(s.Nodes, status.KeyHolder{Node: name, Keys: held})
			}
		}
		text, err := json.Marshal(s)
		return string(text), err
	}
	return "", nil
}

func (f *fakeCluster) InstallKey(_ context.Context, names ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if f.ignores != "install" || name == cluster.Intruder {
			f.keys.held[name] = slices.Clone(f.keys.file)
		}
		if f.keys.deaf && f.nodes[name] != nil {
			f.keys.refused[name]++
		}
	}
	return nil
}

func (f *fakeCluster) Intrude(_ context.Context, node string) (stop func(context.Context) error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys.intruders++; !f.keys.welcomes && !slices.Contains(f.keys.held[node], f.keys.held[cluster.Intruder][0]) {
		f.keys.refused[node]++
	}
	return func(context.Context) error { f.keys.intruders--; return nil }, nil
}

const fourLosses = `listening
time=2026-01-02T10:00:00.500Z level=INFO msg="gossip: member gone" node=a peer=b graceful=true
time=2026-01-02T10:00:02.000Z level=INFO msg="gossip: member joined" node=a pool=lan peer=b peer_region=eu
time=2026-01-02T10:00:05.000Z level=WARN msg="peers cannot be reached: the limits" node=a peers=eu/b count=1 x=1
time=2026-01-02T10:00:06.000Z level=WARN msg="peers cannot be reached: they" node=a peers="eu/b, eu/c" count=2
time=2026-01-02T10:00:06.000Z level=WARN msg="a region cannot be reached: the limits" node=a peer_region=us nodes=1
time=never level=INFO msg="gossip: member gone" node=a peer=b
`

// A loss counts unless it is of who was being restarted, at that time; a line about several never is.
func TestUnexpected(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 10, 0, second, 0, time.UTC) }
	for name, c := range map[string]struct {
		since   time.Time
		restart restart
		want    int
	}{
		"nobody restarts":       {at(0), restart{}, 4},
		"the peer restarts":     {at(0), restart{node: "b", from: at(0), to: at(3)}, 3},
		"it takes long":         {at(0), restart{node: "b", from: at(0), to: at(9)}, 2},
		"the node restarts":     {at(0), restart{node: "a", from: at(0), to: at(9)}, 0},
		"another one restarts":  {at(0), restart{node: "c", from: at(0), to: at(9)}, 4},
		"it restarts too late":  {at(0), restart{node: "b", from: at(1), to: at(3)}, 4},
		"it restarts too early": {at(0), restart{node: "b", from: at(-9), to: at(0)}, 4},
		"an earlier run":        {at(1), restart{}, 3},
	} {
		got := unexpected(losses("a", fourLosses, c.since), []restart{c.restart})
		if len(got) != c.want {
			t.Errorf("%s: %+v, want %d", name, got, c.want)
		}
	}
	all := losses("a", fourLosses, at(0))
	if len(all) != 4 || all[0].peer != "b" || all[1].peer != "b" || all[2].peer+all[3].peer != "" ||
		!strings.Contains(all[1].line, "cannot be reached") {
		t.Errorf("%+v", all)
	}
}
