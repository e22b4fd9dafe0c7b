package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"
)

// The floods, and what they must not break.
const (
	floodBudget = 64 << 20
	floodEvery  = 6 * time.Microsecond // between two requests: ten million a minute
	floodDrain  = 100 * time.Millisecond
	floodTurn   = 16 // unique keys for each request of an offender
	rssFactor   = 1.2
	takeAtMost  = time.Millisecond
	keptAtLeast = 0.999
)

// floodSize is how many keys ask.
type floodSize struct {
	uniques   int // ask once
	offenders int // are over their limit and keep asking beside the unique ones
	all       int // are over their limit, all of them
}

var fullFlood = floodSize{uniques: 10_000_000, offenders: 10_000, all: 1_000_000}

// floodReport is what a flood came to.
type floodReport struct {
	Flood     string     `json:"flood"`
	Asked     uint64     `json:"asked"`
	TookS     float64    `json:"took_s"`
	BudgetMiB float64    `json:"budget_mib"`
	FloorMiB  float64    `json:"floor_mib"` // resident before the table
	RSSMiB    float64    `json:"rss_mib"`   // the most during the flood
	Collector string     `json:"gc"`        // what the garbage collector was told
	P50       float64    `json:"p50_us"`
	P99       float64    `json:"p99_us"`
	P999      float64    `json:"p999_us"`
	Max       float64    `json:"max_us"`
	Over      int        `json:"over_limit"`      // keys over their limit
	Kept      int        `json:"over_limit_kept"` // of those, denied each time they asked after that
	Stats     floodStats `json:"stats"`
	Promises  []promise  `json:"promises"`
}

type promise struct {
	Text string `json:"promise"`
	Met  bool   `json:"met"`
}

func runFlood(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench flood", flag.ContinueOnError)
	flags.SetOutput(stderr)
	fast := flags.Bool("fast", false, "as fast as it goes, in the time of the requests' own clock; otherwise ten million requests a minute")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	floor, err := residentFloor()
	if err != nil {
		return err
	}
	var reports []floodReport
	for _, act := range []play{uniqueKeys, allOverLimit} {
		r, err := runOne(ctx, fullFlood, act, floor, !*fast, stderr)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(reports)
	} else {
		err = writeFloods(stdout, reports)
	}
	if err != nil {
		return err
	}
	for _, r := range reports {
		for _, p := range r.Promises {
			if !p.Met {
				return errMissed
			}
		}
	}
	return nil
}

// residentFloor is what this process holds with the smallest of tables.
func residentFloor() (uint64, error) {
	t, err := newFloodTable(0, 10)
	if err != nil {
		return 0, err
	}
	t.take(1, benchStart)
	t.drain(benchStart)
	debug.FreeOSMemory()
	rss, err := resident()
	runtime.KeepAlive(t)
	return rss, err
}

// play is what a flood does.
type play func(context.Context, *flood) error

func runOne(ctx context.Context, size floodSize, act play, floor uint64, paced bool, progress io.Writer) (floodReport, error) {
	debug.FreeOSMemory()
	f := &flood{size: size, paced: paced, floor: floor, begun: time.Now(), drains: make(chan int64), progress: progress}
	watch := startWatch()
	drained := make(chan struct{})
	go func() { // beside the requests, as in a node
		defer close(drained)
		for now := range f.drains {
			f.table.drain(now)
		}
	}()
	err := act(ctx, f)
	close(f.drains)
	<-drained
	took := time.Since(f.begun)
	rss, watchErr := watch.stop()
	if err != nil {
		return floodReport{}, err
	}
	if watchErr != nil {
		return floodReport{}, watchErr
	}
	return f.report(took, rss), nil
}

// flood is one flood under way.
type flood struct {
	size     floodSize
	table    *floodTable
	name     string
	paced    bool
	promised bool // that the offenders are kept
	floor    uint64
	begun    time.Time
	asked    uint64
	times    histogram
	drains   chan int64
	progress io.Writer
	let      []bool // of the clients over their limit: admitted again
}

// now is the time of the next request, by the requests' clock.
func (f *flood) now() int64 { return benchStart + int64(f.asked)*int64(floodEvery) }

// ask lets a key ask once.
func (f *flood) ask(key uint64) (admitted bool) {
	now := f.now()
	begin := time.Now()
	admitted = f.table.take(key, now)
	f.times.add(time.Since(begin))
	f.asked++
	const perMS = uint64(time.Millisecond / floodEvery)
	if f.paced && f.asked%perMS == 0 {
		time.Sleep(time.Until(f.begun.Add(time.Duration(f.asked) * floodEvery)))
	}
	if f.asked%uint64(floodDrain/floodEvery) == 0 {
		f.drains <- now
	}
	return admitted
}

// askAgain lets a client ask that is over its limit.
func (f *flood) askAgain(client uint64) {
	if f.ask(floodKey(client)) {
		f.let[client] = true
	}
}

// tell says how far it is, ten times a flood; it is an error if it was told to end.
func (f *flood) tell(ctx context.Context, done, of int) error {
	if done%(of/10) != 0 {
		return nil
	}
	fmt.Fprintf(f.progress, "%s: %d %%\n", f.name, 100*done/of)
	return ctx.Err()
}

// floodKey is the key of the n-th client: all differ (splitmix64).
func floodKey(n uint64) uint64 {
	z := (n + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniqueKeys are ten million keys that ask once each, beside ten thousand that are over their limit of 10 and keep asking.
func uniqueKeys(ctx context.Context, f *flood) (err error) {
	f.name = fmt.Sprintf("%d unique keys, %d over a limit of 10", f.size.uniques, f.size.offenders)
	f.promised, f.let = true, make([]bool, f.size.offenders)
	if f.table, err = newFloodTable(floodBudget, 10); err != nil {
		return err
	}
	offenders := uint64(f.size.offenders)
	for i := range offenders {
		for range 10 {
			f.ask(floodKey(i))
		}
		f.askAgain(i)
	}
	for i := range uint64(f.size.uniques) {
		f.ask(floodKey(offenders + i))
		if i%floodTurn == 0 {
			f.askAgain(i / floodTurn % offenders)
		}
		if err := f.tell(ctx, int(i), f.size.uniques); err != nil {
			return err
		}
	}
	for i := range offenders {
		f.askAgain(i)
	}
	return nil
}

// allOverLimit are a million keys that ask twice each, a limit of 1, and then once more: more than the table can hold.
func allOverLimit(ctx context.Context, f *flood) (err error) {
	f.name, f.let = fmt.Sprintf("%d keys, all over a limit of 1", f.size.all), make([]bool, f.size.all)
	if f.table, err = newFloodTable(floodBudget, 1); err != nil {
		return err
	}
	for i := range uint64(f.size.all) {
		f.ask(floodKey(i))
		f.askAgain(i)
		if err := f.tell(ctx, int(i), f.size.all); err != nil {
			return err
		}
	}
	for i := range uint64(f.size.all) {
		f.askAgain(i)
	}
	return nil
}
