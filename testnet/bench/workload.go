package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// pace says how long to measure.
type pace struct {
	rounds      int
	slice       time.Duration
	repeats     int   // slices that are repeated at most, because the machine gave too little of itself
	budgets     []int // that tables are filled up to, in MiB; the worst counts: a table may waste of one what it uses of another
	collections int   // garbage collections that are timed a contestant, at least
}

// servedWell is the share of its cores that a slice has to get. One that got less is measured again, as long as there are repeats left:
// other processes cost it time, or its cores waited for each other, which then shows again.
const servedWell = 0.9

// workload is who asks.
type workload struct {
	name    string
	setting *setting
	streams []*stream // one a core
	offset  []int     // where in its stream each core starts
}

// The names that goals and ratios refer to.
const (
	twoCores = ", 2 cores"

	loadHot       = "hot key"
	loadHotTwo    = loadHot + twoCores
	loadSome      = "own 1024 keys"
	loadSomeTwo   = loadSome + twoCores
	loadCold      = "1M uniform"
	loadColdTwo   = loadCold + twoCores
	loadZipf      = "1M Zipf"
	loadZipfTwo   = loadZipf + twoCores
	loadDenied    = "denied"
	loadDeniedTwo = loadDenied + twoCores
)

func workloads() []workload {
	one, mine, yours := newStream(hot()), newStream(some(1)), newStream(some(2))
	cold, busy := newStream(uniform(1<<21)), newStream(zipf(1<<21))
	half := cold.len() / 2
	return []workload{
		{loadHot, settingHot, []*stream{one}, []int{0}},
		{loadHotTwo, settingHot, []*stream{one, one}, []int{0, 0}},
		{loadSome, settingHot, []*stream{mine}, []int{0}},
		{loadSomeTwo, settingHot, []*stream{mine, yours}, []int{0, 0}},
		{loadCold, settingMillion, []*stream{cold}, []int{0}},
		{loadColdTwo, settingMillion, []*stream{cold, cold}, []int{0, half}},
		{loadZipf, settingMillion, []*stream{busy}, []int{0}},
		{loadZipfTwo, settingMillion, []*stream{busy, busy}, []int{0, half}},
		{loadDenied, settingDenied, []*stream{one}, []int{0}},
		{loadDeniedTwo, settingDenied, []*stream{one, one}, []int{0, 0}},
	}
}

// turn is a contestant at one workload.
type turn struct {
	contestant *contestant
	load       *workload
	limiter    limiter
	at         []int
	chunk      int // requests between two looks at the time: some 30 us
	slices     []slice
}

// timings measures every contestant at every workload, round after round.
func timings(ctx context.Context, all []contestant, p pace, progress io.Writer) ([]*turn, error) {
	loads := workloads()
	opened := map[*contestant]map[*setting]limiter{}
	defer func() {
		for _, ls := range opened {
			for _, l := range ls {
				if c, ok := l.(closer); ok {
					c.close()
				}
			}
		}
	}()
	fmt.Fprintln(progress, "filling every contestant with a million keys")
	for _, s := range []*setting{settingHot, settingDenied, settingMillion} {
		met := newStream(s.clients())
		for i := range all {
			c := &all[i]
			if opened[c] == nil {
				opened[c] = map[*setting]limiter{}
			}
			if c.hotOnly && s == settingMillion {
				continue
			}
			l, err := c.opened(ctx, s, met)
			if err := errors.Join(err, ctx.Err()); err != nil {
				return nil, err
			}
			opened[c][s] = l
		}
	}
	var turns []*turn
	for i := range loads {
		for j := range all {
			if l := opened[&all[j]][loads[i].setting]; l != nil {
				turns = append(turns, &turn{contestant: &all[j], load: &loads[i], limiter: l, at: append([]int(nil), loads[i].offset...), chunk: 1})
			}
		}
	}
	k := startTimekeeper()
	defer k.stop()
	err := withoutCollections(func(collect func()) error {
		for _, t := range turns { // warm up, and find out how fast they are
			s := k.measure(t.limiter, t.load.streams, t.at, time.Millisecond, 16)
			t.chunk = max(1, min(4096, int(30e3/s.ns)/len(t.at)))
		}
		for round := range p.rounds {
			fmt.Fprintf(progress, "round %d of %d\n", round+1, p.rounds)
			for _, t := range turns {
				if err := ctx.Err(); err != nil {
					return err
				}
				collect()
				s, err := t.measured(k, p.slice, &p.repeats)
				if err != nil {
					return err
				}
				t.slices = append(t.slices, s)
			}
		}
		return nil
	})
	return turns, err
}

// measured measures a slice, and up to twice more if it was served badly; the one served best counts.
func (t *turn) measured(k *timekeeper, d time.Duration, repeats *int) (best slice, err error) {
	for try := range 3 {
		if try > 0 && (t.contestant.outOfProcess || best.served >= servedWell || *repeats == 0) {
			break
		} else if try > 0 {
			*repeats--
		}
		s := k.measure(t.limiter, t.load.streams, t.at, d, t.chunk)
		if err := t.plausible(s); err != nil {
			return s, err
		}
		if try == 0 || s.served > best.served {
			best = s
		}
	}
	return best, nil
}

// plausible says whether the slice measured what it should have: decisions that admit, or such that deny. Not all of them: throttled gives
// up on a key that two cores ask for together when it has tried ten times.
func (t *turn) plausible(s slice) error {
	share := float64(s.admitted) / float64(s.asked)
	if t.load.setting.limited && share > 0.001 || !t.load.setting.limited && share < 0.9 && !t.contestant.mayDeny {
		return fmt.Errorf("%s, %s: admitted %d of %d", t.contestant.name, t.load.name, s.admitted, s.asked)
	}
	return nil
}
