package gossip

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/race"
)

var simSeed = flag.Uint64("gossip.seed", 0, "the only seed of the simulation to run; 0 runs all")

const (
	simSeeds = 200
	// unrest is how long faults and traffic last.
	unrest = 12 * time.Second
	// agreeWithin is how long after the last fault all have to agree on what those that run admitted. A snapshot that broke just
	// before is sent again after two of the longest RTOs, and takes up to two seconds.
	agreeWithin = 9 * time.Second
)

// simulate plays one seed to its end and returns the world, with all that went wrong in it.
func simulate(seed uint64, s sabotage) *world {
	w := newWorld(seed, s)
	w.faults(w.now + int64(unrest))
	w.run(unrest)
	w.calm()
	w.settle()

	w.checkReplays()
	// The protocol outlives the replays: new counts arrive everywhere.
	for _, n := range w.up() {
		w.request(n)
	}
	w.run(5 * time.Second)
	w.runToHalf()
	if err := w.checkAgreement(anyOrigin); err != nil {
		w.violate("I1", "after the replays: %w", err)
	}
	return w
}

// settle lets what was on its way arrive, and checks that all agree then.
func (w *world) settle() {
	w.run(agreeWithin)
	w.runToHalf()
	if err := w.checkAgreement(w.isUp); err != nil {
		w.violate("I1", "%w", err)
	}
	w.checkComplete()
	// What only some know of a node that is gone comes round with memberlist's exchanges of everything.
	for range 2 {
		for i, n := range w.up() {
			w.pushPull(n, w.up()[(i+1)%len(w.up())])
		}
	}
	if err := w.checkAgreement(anyOrigin); err != nil {
		w.violate("I1", "%w", err)
	}
	for _, n := range w.up() {
		w.checkSlots(n)
	}
	w.run(3 * time.Second)
	w.checkRest()
}

// failure is all that went wrong, with the command that plays it again; nil if nothing did.
func (w *world) failure() error {
	if len(w.wrong) == 0 {
		return nil
	}
	errs := []error{fmt.Errorf("%d nodes, T = %v, %d crashes", len(w.nodes), w.interval, w.crashes)}
	if w.seed != 0 {
		errs = append(errs, fmt.Errorf("play it again with\n\tgo test ./gossip -run TestReplicaSeeds -gossip.seed=%d", w.seed))
	}
	for _, invariant := range slices.Sorted(maps.Keys(w.wrong)) {
		errs = append(errs, w.wrong[invariant])
	}
	return errors.Join(errs...)
}

func TestReplicaSeeds(t *testing.T) {
	if *simSeed != 0 {
		if err := simulate(*simSeed, sabotage{}).failure(); err != nil {
			t.Fatal(err)
		}
		return
	}
	for seed := range race.Tenth(simSeeds) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			if err := simulate(uint64(seed)+1, sabotage{}).failure(); err != nil {
				t.Error(err)
			}
		})
	}
}
