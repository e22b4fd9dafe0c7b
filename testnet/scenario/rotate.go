package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// rotation is what a run with a new gossip key measures.
type rotation struct {
	nodes    []string // all that have the key file
	old, new string   // keys, by their fingerprints
	refused  []string // commands that came too early and were refused, with the reason
	early    []string // commands that came too early and were not
	unread   int64    // packets and streams that nodes dropped while the key was replaced
	intruder int64    // and those of a process with the old key, afterwards
	admitted []string // nodes that see that process as a member
	held     int      // nodes that have the new key alone
}

// rotatePatience bounds the time until all nodes have read a key file, and know of each other that they have.
const rotatePatience = 15 * time.Second

func rotate() Scenario {
	return upkeep("rotate", "the gossip key is replaced under load, as the operator's guide says, half of the nodes "+
		"before the others: 0 failed requests, 0 members lost, no count is forgotten, and the old key is refused",
		checkRotated,
		wait("load in all regions", 3*time.Second),
		Step{"add a key", addKey},
		Step{"send by it", useKey},
		Step{"remove the old one", removeKey},
		wait("load after that", time.Second),
		Step{"join with the old one", intrude})
}

// keys runs a command as the operator does, who asks the first node.
func (r *Run) keys(ctx context.Context, args ...string) (string, error) {
	return r.Cluster.Keys(ctx, r.Nodes[0].Name, args...)
}

// tooEarly runs a command that has to be refused for the reason.
func (r *Run) tooEarly(ctx context.Context, reason string, args ...string) {
	command := strings.Join(args, " ")
	if _, err := r.keys(ctx, args...); err != nil && strings.Contains(err.Error(), reason) {
		r.rotation.refused = append(r.rotation.refused, command)
		r.Observed("refused: keys %s: %s", command, reason)
	} else {
		r.rotation.early = append(r.rotation.early, fmt.Sprintf("%s:%s", command, errorText(err)))
	}
}

// once runs a command until it is not refused any more.
func (r *Run) once(ctx context.Context, args ...string) error {
	_, err := poll(ctx, 200*time.Millisecond, rotatePatience, func() (bool, error) {
		_, err := r.keys(ctx, args...)
		return err == nil, err
	})
	return err
}

// install copies the key file to every other node, calls between, and copies it to the rest.
func (r *Run) install(ctx context.Context, between func()) error {
	var halves [2][]string
	for i, n := range r.rotation.nodes {
		halves[i%2] = append(halves[i%2], n)
	}
	if err := r.Cluster.InstallKey(ctx, halves[0]...); err != nil {
		return err
	}
	// Some frames of each node, and some rounds of the membership's probes, in the mixed cluster.
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	between()
	return r.Cluster.InstallKey(ctx, halves[1]...)
}

// holders returns which keys the nodes have, by what the asked one knows.
func (r *Run) holders(ctx context.Context, node string) (holders []status.KeyHolder, err error) {
	text, err := r.Cluster.Keys(ctx, node, "status", "--json")
	if err != nil {
		return nil, err
	}
	var s struct{ Nodes []status.KeyHolder }
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("keys status --json: %w", err)
	}
	return s.Nodes, nil
}

func addKey(ctx context.Context, r *Run) error {
	all, err := r.Cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range all {
		r.rotation.nodes = append(r.rotation.nodes, n.Name)
	}
	before, err := r.holders(ctx, r.Nodes[0].Name)
	if err != nil {
		return err
	}
	if len(before) != len(all) || len(before[0].Keys) != 1 {
		return fmt.Errorf("want %d nodes with one key: %+v", len(all), before)
	}
	r.rotation.old = before[0].Keys[0]
	if r.rotation.unread, err = r.refusedPackets(ctx); err != nil {
		return err
	}
	// For later, as somebody may have kept it who should not.
	if err := r.Cluster.InstallKey(ctx, cluster.Intruder); err != nil {
		return err
	}
	if _, err := r.keys(ctx, "add", cluster.KeyFile); err != nil {
		return err
	}
	r.tooEarly(ctx, "does not have it", "use", cluster.KeyFile)
	r.tooEarly(ctx, "sends by it", "remove", cluster.KeyFile, r.rotation.old)
	return r.install(ctx, func() { r.tooEarly(ctx, "does not have it", "use", cluster.KeyFile) })
}

func useKey(ctx context.Context, r *Run) error {
	if err := r.once(ctx, "use", cluster.KeyFile); err != nil {
		return err
	}
	tooEarly := func() { r.tooEarly(ctx, "sends by it", "remove", cluster.KeyFile, r.rotation.old) }
	tooEarly()
	return r.install(ctx, tooEarly)
}

func removeKey(ctx context.Context, r *Run) error {
	if err := r.once(ctx, "remove", cluster.KeyFile, r.rotation.old); err != nil {
		return err
	}
	if err := r.install(ctx, func() {}); err != nil {
		return err
	}
	_, err := poll(ctx, 200*time.Millisecond, rotatePatience, func() (bool, error) {
		r.rotation.held = 0
		for _, n := range r.rotation.nodes { // each by what it says of itself
			holders, err := r.holders(ctx, n)
			if err != nil {
				return false, err
			}
			i := slices.IndexFunc(holders, func(h status.KeyHolder) bool { return h.Node == n })
			if i < 0 || len(holders[i].Keys) != 1 || holders[i].Keys[0] == r.rotation.old ||
				r.rotation.new != "" && holders[i].Keys[0] != r.rotation.new {
				return false, fmt.Errorf("%s has the keys %+v, and %s was removed", n, holders, r.rotation.old)
			}
			r.rotation.new = holders[i].Keys[0]
			r.rotation.held++
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	r.Observed("%s replaces %s on %d nodes", r.rotation.new, r.rotation.old, r.rotation.held)
	now, err := r.refusedPackets(ctx)
	r.rotation.unread = now - r.rotation.unread
	return err
}

// refusedPackets returns what the nodes have dropped unread so far.
func (r *Run) refusedPackets(ctx context.Context) (total int64, err error) {
	for _, n := range r.Nodes {
		o, failed := r.Cluster.Observe(ctx, n)
		total, err = total+o.Refused, errors.Join(err, failed)
	}
	return total, err
}

// intrude has a process with the old key try to join, until a node has refused it.
func intrude(ctx context.Context, r *Run) (err error) {
	before, err := r.refusedPackets(ctx)
	if err != nil {
		return err
	}
	stop, err := r.Cluster.Intrude(ctx, r.Nodes[0].Name)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, stop(ctx))
	}()
	_, err = poll(ctx, 200*time.Millisecond, rotatePatience, func() (bool, error) {
		now, err := r.refusedPackets(ctx)
		r.rotation.intruder = now - before
		return err == nil && r.rotation.intruder > 0, errors.Join(err,
			errors.New("no node refused a process with the old key"))
	})
	if err != nil {
		return err
	}
	r.Observed("%d packets and streams of a process with the old key were refused", r.rotation.intruder)
	all, err := r.Cluster.Nodes(ctx)
	for _, n := range r.Nodes {
		o, failed := r.Cluster.Observe(ctx, n)
		err = errors.Join(err, failed)
		if o.Members >= len(all) {
			r.rotation.admitted = append(r.rotation.admitted, n.Name)
		}
	}
	return err
}

func checkRotated(r *Run) {
	x := &r.rotation
	r.Assert("what comes too early is refused", len(x.early) == 0 && len(x.refused) == 5, "5 commands",
		"%d, and not %q", len(x.refused), x.early)
	r.Assert("all nodes have the new key, and no other", x.held == len(x.nodes) && x.new != x.old && x.new != "",
		fmt.Sprintf("%d nodes", len(x.nodes)), "%d", x.held)
	r.Assert("nodes can read each other throughout", x.unread == 0, "0 packets refused", "%d", x.unread)
	r.Assert("the old key is refused", x.intruder > 0 && len(x.admitted) == 0, "packets refused, by nobody accepted",
		"%d, %q", x.intruder, x.admitted)
	checkMembers(r)
}
