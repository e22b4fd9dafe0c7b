package regionstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
)

// Fault is what a Faulty store does to the calls that come.
type Fault int

// The faults of a store behind a network.
const (
	Works      Fault = iota
	Fails            // returns ErrFault at once
	Hangs            // does nothing until the call's context ends
	AnswerLost       // executes the call, but returns an error once its context ends
)

// ErrFault is the error of a Faulty store that Fails.
var ErrFault = errors.New("injected fault")

// Faulty is a Store with injected faults. Its own methods use time.Now. It is safe for concurrent use, also in a
// testing/synctest bubble.
type Faulty struct {
	open func() regions.Store

	mu    sync.Mutex
	inner regions.Store
	fault Fault
	epoch int
	saved struct{ merged, restored []counters.Slot } // by Merge and by Restore
	calls int
}

// NewFaulty returns a working store around an empty one that open returns.
func NewFaulty(open func() regions.Store) *Faulty {
	return &Faulty{open: open, inner: open()}
}

// Set sets the fault of the calls from now on.
func (f *Faulty) Set(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// Flush drops everything, the copy for RollBack as well, and keeps the epoch: a loss that only counts show.
func (f *Faulty) Flush() { f.clear(0) }

// Restart drops everything, the copy for RollBack as well, and changes the epoch: an empty store where another was.
func (f *Faulty) Restart() { f.clear(1) }

func (f *Faulty) clear(epochs int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = f.open()
	f.saved.merged, f.saved.restored = nil, nil
	f.epoch += epochs
}

// Save keeps a copy for RollBack: what a replica has received so far.
func (f *Faulty) Save() error {
	slots, err := f.Slots()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	merged, restored := slices.Clone(slots), slices.Clone(slots)
	for i := range slots {
		slots[i].Count = 0 // only reads
	}
	answer, err := f.inner.Merge(context.Background(), slots, time.Now().UnixNano())
	if err != nil {
		return err
	}
	for i, before := range answer.Before {
		merged[i].Count = before
	}
	f.saved.merged, f.saved.restored = merged, restored
	return nil
}

// RollBack restores the copy that Save kept, as a failover to a lagging replica does. It keeps the epoch: a store that
// does not notice the failover is the harder case.
func (f *Faulty) RollBack() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = f.open()
	if _, err := f.inner.Merge(context.Background(), f.saved.merged, time.Now().UnixNano()); err != nil {
		return err
	}
	return f.inner.Restore(context.Background(), f.saved.restored, time.Now().UnixNano())
}

// Calls returns the number of calls so far, failed ones included.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Slots returns what the store holds, whatever its fault.
func (f *Faulty) Slots() ([]counters.Slot, error) {
	f.mu.Lock()
	inner := f.inner
	f.mu.Unlock()
	var slots []counters.Slot
	err := inner.Load(context.Background(), time.Now().UnixNano(),
		func(page []counters.Slot) { slots = append(slots, page...) })
	return slots, err
}

// Merge implements regions.Store.
func (f *Faulty) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	inner, epoch, fault, err := f.begin(ctx)
	if err != nil {
		return regions.Merged{}, err
	}
	merged, err := inner.Merge(ctx, slots, now)
	if fault == AnswerLost {
		return regions.Merged{}, hang(ctx)
	}
	if err == nil {
		merged.Epoch = epoch
	}
	return merged, err
}

// Restore implements regions.Store.
func (f *Faulty) Restore(ctx context.Context, slots []counters.Slot, now int64) error {
	inner, _, fault, err := f.begin(ctx)
	if err != nil {
		return err
	}
	err = inner.Restore(ctx, slots, now)
	if fault == AnswerLost {
		return hang(ctx)
	}
	return err
}

// Load implements regions.Store.
func (f *Faulty) Load(ctx context.Context, now int64, page func(slots []counters.Slot)) error {
	inner, _, fault, err := f.begin(ctx)
	if err != nil {
		return err
	}
	if fault == AnswerLost {
		return hang(ctx)
	}
	return inner.Load(ctx, now, page)
}

// begin counts a call, and fails it if the fault says so.
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
