package regionstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
)

// Fault is what a Faulty store does to the calls that come.
type Fault int

// The faults of a store that is reached over a network.
const (
	Works Fault = iota
	Fails       // refuses the call at once
	Hangs       // answers nothing until the call's context ends, and does nothing
	Mute        // does what was asked, but the answer is lost: nothing until the call's context ends
)

// ErrFault is the error of a Faulty store that Fails.
var ErrFault = errors.New("injected fault")

// Faulty is a Store that fails on purpose. It is safe for concurrent use, and fits into a testing/synctest bubble.
type Faulty struct {
	open func() regions.Store

	mu    sync.Mutex
	inner regions.Store
	fault Fault
	epoch int
	saved struct{ told, restored []counters.Slot }
	calls int
}

// NewFaulty returns a store that works, around one that open makes. Each store that open returns is empty.
func NewFaulty(open func() regions.Store) *Faulty {
	return &Faulty{open: open, inner: open()}
}

// Set chooses what happens to the calls that come from now on.
func (f *Faulty) Set(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// Lose drops everything, the copy for RollBack as well, and keeps the epoch: Redis' FLUSHALL.
func (f *Faulty) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = f.open()
	f.saved.told, f.saved.restored = nil, nil
}

// Restart drops everything, the copy for RollBack as well, and changes the epoch: an empty store where another was.
func (f *Faulty) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = f.open()
	f.saved.told, f.saved.restored = nil, nil
	f.epoch++
}

// Save keeps a copy for RollBack: what a replica has received so far.
func (f *Faulty) Save() error {
	slots, err := f.Slots()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	told, restored := slices.Clone(slots), slices.Clone(slots)
	for i := range slots {
		slots[i].Count = 0 // ask
	}
	merged, err := f.inner.Merge(context.Background(), slots)
	if err != nil {
		return err
	}
	for i, before := range merged.Before {
		told[i].Count = before
	}
	f.saved.told, f.saved.restored = told, restored
	return nil
}

// RollBack returns to what was saved last, as a failover to a replica that had fallen behind does. The epoch stays: a store that
// does not notice that itself is the harder case.
func (f *Faulty) RollBack() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = f.open()
	if _, err := f.inner.Merge(context.Background(), f.saved.told); err != nil {
		return err
	}
	return f.inner.Restore(context.Background(), f.saved.restored)
}

// Calls is how many calls came, whatever became of them.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Slots is what the store holds in truth, whatever its fault.
func (f *Faulty) Slots() ([]counters.Slot, error) {
	f.mu.Lock()
	inner := f.inner
	f.mu.Unlock()
	var slots []counters.Slot
	err := inner.Load(context.Background(), func(page []counters.Slot) { slots = append(slots, page...) })
	return slots, err
}

// Merge implements regions.Store.
func (f *Faulty) Merge(ctx context.Context, slots []counters.Slot) (regions.Merged, error) {
	inner, epoch, fault, err := f.begin(ctx)
	if err != nil {
		return regions.Merged{}, err
	}
	merged, err := inner.Merge(ctx, slots)
	if fault == Mute {
		return regions.Merged{}, hang(ctx)
	}
	if err == nil {
		merged.Epoch = epoch
	}
	return merged, err
}

// Restore implements regions.Store.
func (f *Faulty) Restore(ctx context.Context, slots []counters.Slot) error {
	inner, _, fault, err := f.begin(ctx)
	if err != nil {
		return err
	}
	err = inner.Restore(ctx, slots)
	if fault == Mute {
		return hang(ctx)
	}
	return err
}

// Load implements regions.Store.
func (f *Faulty) Load(ctx context.Context, page func(slots []counters.Slot)) error {
	inner, _, fault, err := f.begin(ctx)
	if err != nil {
		return err
	}
	if fault == Mute {
		return hang(ctx)
	}
	return inner.Load(ctx, page)
}

// begin notes a call and, unless it is to get through, makes it fail.
func (f *Faulty) begin(ctx context.Context) (inner regions.Store, epoch string, fault Fault, err error) {
	f.mu.Lock()
	f.calls++
	inner, epoch, fault = f.inner, fmt.Sprintf("epoch %d", f.epoch), f.fault
	f.mu.Unlock()
	switch fault {
	case Fails:
		err = ErrFault
	case Hangs:
		err = hang(ctx)
	}
	return inner, epoch, fault, err
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("no answer: %w", ctx.Err())
}
