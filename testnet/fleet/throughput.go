package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Throughput is how many decisions a second all nodes make at each door.
type Throughput struct {
	Nodes       int          `json:"nodes"`
	Connections int          `json:"connections"` // to each node
	Clients     int          `json:"clients"`
	Rate        int          `json:"rate"` // of the paced part, decisions a second
	Doors       []DoorFigure `json:"doors"`
}

// DoorFigure is what one door does. Latencies are those of a request with all its decisions, in milliseconds.
type DoorFigure struct {
	Door  string `json:"door"`
	Depth int    `json:"depth"`
	// Closed: each connection asks again as soon as it has its answer.
	Closed Slice `json:"closed"`
	// Paced: at Throughput.Rate, latencies from when a request was due. Nothing if the closed loop did not reach it.
	Paced *Slice `json:"paced,omitempty"`
}

// Slice is a measured time.
type Slice struct {
	PerSecond     float64 `json:"decisions_per_s"`
	P50Millis     float64 `json:"p50_ms"`
	P99Millis     float64 `json:"p99_ms"`
	NodesCPUPct   float64 `json:"nodes_cpu_pct"`   // of one processor, by all nodes
	ClientsCPUPct float64 `json:"clients_cpu_pct"` // by this process
	OthersCPUPct  float64 `json:"others_cpu_pct"`  // by everybody else on the machine
	PauseMillis   float64 `json:"pause_ms"`        // the longest time that this process was kept from running
}

// ThroughputOptions say how it is measured.
type ThroughputOptions struct {
	Slice       time.Duration // for each part of each door
	Connections int           // to each node
	Clients     int           // that all connections ask for
	Rate        int           // decisions a second of the paced part
	Door        string        // only doors whose names contain it
}

// MeasureDoors starts the fleet, asks all nodes at one door after the other as fast as they answer, and ends it.
func MeasureDoors(ctx context.Context, o Options, t ThroughputOptions) (_ *Throughput, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if t.Slice < 10*time.Millisecond || t.Connections < 1 || t.Clients < 1 || t.Rate < 1 {
		return nil, fmt.Errorf("slices of %v, %d connections, %d clients, %d a second: want 10ms and 1 at least",
			t.Slice, t.Connections, t.Clients, t.Rate)
	}
	f, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	r := &Throughput{Nodes: len(f.nodes), Connections: t.Connections, Clients: t.Clients, Rate: t.Rate}
	for _, d := range doors() {
		if !strings.Contains(d.name, t.Door) {
			continue
		}
		f.log("%s", d.name)
		figure, err := f.measureDoor(ctx, d, &t)
		if err != nil {
			f.kill()
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		r.Doors = append(r.Doors, figure)
	}
	if len(r.Doors) == 0 {
		err = fmt.Errorf("no door's name contains %q", t.Door)
	}
	return r, errors.Join(err, f.close(ctx))
}

// measureDoor measures a door in a closed loop, and paced where it can keep up.
func (f *fleet) measureDoor(ctx context.Context, d door, t *ThroughputOptions) (figure DoorFigure, err error) {
	figure = DoorFigure{Door: d.name, Depth: d.depth}
	var asks []func(int) error
	var ends []func() error
	defer func() {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
	}()
	for range t.Connections {
		for _, n := range f.nodes {
			ask, end, err := d.dial(ctx, n, t.Clients)
			if err != nil {
				return figure, err
			}
			asks, ends = append(asks, ask), append(ends, end)
		}
	}
	// Once over, so that connections, tables and clients are warm.
	if _, err := f.slice(ctx, d, asks, t.Slice/4, 0); err != nil {
		return figure, err
	}
	if figure.Closed, err = f.slice(ctx, d, asks, t.Slice, 0); err != nil || figure.Closed.PerSecond < float64(t.Rate) {
		return figure, err
	}
	paced, err := f.slice(ctx, d, asks, t.Slice, t.Rate)
	figure.Paced = &paced
	return figure, err
}

// slice asks over all connections for a time: at a rate of decisions a second, or without one as fast as answers come.
func (f *fleet) slice(ctx context.Context, d door, asks []func(int) error, took time.Duration, rate int) (s Slice,
	err error,
) {
	before, err := f.machine()
	if err != nil {
		return s, err
	}
	measuring, stop := context.WithTimeout(ctx, took)
	defer stop()
	var stalls pauses
	var background, asking sync.WaitGroup
	background.Go(func() { stalls.run(measuring) })
	latencies, errs := make([][]time.Duration, len(asks)), make([]error, len(asks))
	began := time.Now()
	for i, ask := range asks {
		asking.Go(func() { latencies[i], errs[i] = repeat(measuring, ask, began, i, len(asks), d.depth, rate) })
	}
	asking.Wait()
	elapsed := time.Since(began)
	stop()
	background.Wait()
	after, err := f.machine()
	all := slices.Concat(latencies...)
	s.PerSecond = float64(len(all)*d.depth) / elapsed.Seconds()
	s.P50Millis, s.P99Millis, s.PauseMillis = quantile(all, 0.5), quantile(all, 0.99), quantile(stalls.each, 1)
	percent := func(from, to time.Duration) float64 { return 100 * (to - from).Seconds() / elapsed.Seconds() }
	s.NodesCPUPct, s.ClientsCPUPct = percent(before.nodes, after.nodes), percent(before.self, after.self)
	s.OthersCPUPct = max(0, percent(before.all, after.all)-s.NodesCPUPct-s.ClientsCPUPct)
	return s, errors.Join(append(errs, err)...)
}

// repeat asks until ctx ends, and returns how long each request took: from when it was due, at a rate of decisions a
// second of all connections.
func repeat(ctx context.Context, ask func(int) error, began time.Time, mine, all, depth, rate int) (
	latencies []time.Duration, err error,
) {
	for n := mine; ctx.Err() == nil; n += all {
		due := time.Now()
		if rate > 0 {
			due = began.Add(time.Duration(float64(n*depth) / float64(rate) * float64(time.Second)))
			if wait := time.Until(due); wait > 0 {
				select {
				case <-ctx.Done():
					return latencies, nil
				case <-time.After(wait):
				}
			}
		}
		if err := ask(n / all); err != nil {
			return latencies, err
		}
		latencies = append(latencies, time.Since(due))
	}
	return latencies, nil
}

// cpuTimes are the processor times used so far.
type cpuTimes struct{ nodes, self, all time.Duration }

func (f *fleet) machine() (c cpuTimes, err error) {
	usages, err := f.usages()
	for _, u := range usages {
		c.nodes += u.cpu
	}
	self, failed := readUsage(os.Getpid())
	stat, unread := os.ReadFile("/proc/stat")
	if err = errors.Join(err, failed, unread); err != nil {
		return c, err
	}
	c.self = self.cpu
	c.all, err = parseBusy(string(stat))
	return c, err
}

// parseBusy returns the time that all processors were busy: the first line of /proc/stat but for idle and waiting.
func parseBusy(stat string) (busy time.Duration, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: %q", line)
	}
	for i, field := range fields[1:8] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			busy += time.Duration(ticks) * clockTick
		}
	}
	return busy, nil
}

// WriteText writes the figures as a table of Markdown.
func (r *Throughput) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%d nodes, %d connections to each, %d clients; paced: %d decisions/s. CPU in %% of one processor.",
		r.Nodes, r.Connections, r.Clients, r.Rate)
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t,
		"| door\t| decisions/s\t| p50 ms\t| p99 ms\t| CPU nodes, clients, others\t| paced p50 ms\t| p99 ms\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, d := range r.Doors {
		p50, p99 := "not reached", ""
		if d.Paced != nil {
			p50, p99 = fmt.Sprintf("%.2f", d.Paced.P50Millis), fmt.Sprintf("%.2f", d.Paced.P99Millis)
		}
		fmt.Fprintf(t, "| %s\t| %.0f\t| %.2f\t| %.2f\t| %.0f, %.0f, %.0f\t| %s\t| %s\t|\n", d.Door, d.Closed.PerSecond,
			d.Closed.P50Millis, d.Closed.P99Millis, d.Closed.NodesCPUPct, d.Closed.ClientsCPUPct, d.Closed.OthersCPUPct,
			p50, p99)
	}
	return t.Flush()
}
