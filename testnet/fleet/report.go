package fleet

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is what a run found. Members of its JSON are only ever appended.
type Report struct {
	OK             bool        `json:"ok"`
	Regions        int         `json:"regions"`
	Nodes          int         `json:"nodes"` // in each region
	IntervalMillis float64     `json:"interval_ms"`
	StartSeconds   float64     `json:"start_s"` // until all nodes saw each other
	Steady         Phase       `json:"steady"`
	Rolling        *Phase      `json:"rolling,omitempty"` // while every node was restarted
	RestartSeconds float64     `json:"restart_s"`         // longest of a node, until it was ready
	Hot            Excess      `json:"hot"`               // of the whole run
	Malformed      float64     `json:"malformed_frames"`
	RefusedSlots   float64     `json:"refused_slots"`
	PeakMiB        float64     `json:"peak_mib"` // largest resident memory of a node
	Assertions     []Assertion `json:"assertions"`
}

// Phase is a part of a run.
type Phase struct {
	Seconds    float64        `json:"seconds"`
	Offered    int            `json:"offered"`
	Denied     int            `json:"denied"` // of clients far below their limits
	Failed     int            `json:"failed"`
	FailedBy   map[string]int `json:"failed_by,omitempty"` // by node
	LastError  string         `json:"last_error,omitempty"`
	LateMillis float64        `json:"generator_late_ms"` // largest delay of a request against the plan
	// The pauses of this process: the longest of all, and of all but the worst hundredth of the seconds.
	PauseMaxMillis float64   `json:"pause_max_ms"`
	PauseP99Millis float64   `json:"pause_p99_ms"`
	Agreement      Agreement `json:"agreement"`

	bounds []bound // that nodes exported for hotRule

	// Of the steady load alone.
	InRegion     Staleness `json:"in_region"`
	Across       Staleness `json:"across"`
	CPUPct       float64   `json:"cpu_pct"`        // of one processor, by a node on average
	CPUMaxPct    float64   `json:"cpu_max_pct"`    // and the node with the most
	ResidentMiB  float64   `json:"resident_mib"`   // of a node on average, at its peak
	FramesPerSec float64   `json:"frames_per_s"`   // sent by a node on average
	KbitPerSec   float64   `json:"kbit_per_s"`     // of frames, likewise
	FleetCPUPct  float64   `json:"fleet_cpu_pct"`  // of one processor, by all nodes
	ClientCPUPct float64   `json:"client_cpu_pct"` // by this process
}

// Assertion is something that has to hold.
type Assertion struct {
	What     string `json:"what"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	OK       bool   `json:"ok"`
	// Judged is false where the machine did not keep up, so that the figure says nothing of the nodes.
	Judged bool `json:"judged"`
}

// summary is what the load has done so far.
type summary struct {
	offered, denied int
	failed          map[string]int
	lastError       string
	late            time.Duration
}

// summary returns what was done so far, and begins to measure the lateness again.
func (l *load) summary() summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := summary{l.offered, l.denied, make(map[string]int), l.lastError, l.late}
	for name, n := range l.failed {
		s.failed[name] = n
	}
	l.late = 0
	return s
}

func (p *Phase) requests(before, after summary) {
	p.Offered, p.Denied = after.offered-before.offered, after.denied-before.denied
	p.FailedBy, p.LateMillis = make(map[string]int), float64(after.late.Milliseconds())
	for name, n := range after.failed {
		if n -= before.failed[name]; n > 0 {
			p.FailedBy[name] = n
			p.Failed += n
			p.LastError = after.lastError
		}
	}
}

func (p *Phase) pauses(each []time.Duration) {
	p.PauseMaxMillis, p.PauseP99Millis = quantile(each, 1), quantile(each, 0.99)
}

// cost computes what a node used and sent in the time between two readings.
func (p *Phase) cost(before, after reading, took time.Duration) {
	nodes := float64(len(after.usages))
	for i, u := range after.usages {
		cpu := 100 * (u.cpu - before.usages[i].cpu).Seconds() / took.Seconds()
		p.FleetCPUPct += cpu
		p.CPUMaxPct = max(p.CPUMaxPct, cpu)
		p.ResidentMiB += float64(u.resident) / (1 << 20) / nodes
	}
	p.CPUPct = p.FleetCPUPct / nodes
	p.ClientCPUPct = 100 * (after.self - before.self).Seconds() / took.Seconds()
	perSecond := nodes * took.Seconds()
	p.FramesPerSec = (after.totals.framesSent - before.totals.framesSent) / perSecond
	p.KbitPerSec = (after.totals.bytesSent - before.totals.bytesSent) * 8 / 1000 / perSecond
}

// keptUp reports whether the machine let this process run often enough for times to say something of the nodes.
func (p *Phase) keptUp(interval time.Duration) bool {
	return p.PauseP99Millis <= interval.Seconds()*1000 && p.LateMillis <= 1000
}

// assert fills in what has to hold.
func (r *Report) assert(o *Options) {
	add := func(judged, ok bool, what, want, got string, args ...any) {
		r.Assertions = append(r.Assertions, Assertion{what, want, fmt.Sprintf(got, args...), ok, judged})
	}
	phases := []struct {
		name string
		*Phase
	}{{"steady", &r.Steady}, {"rolling restart", r.Rolling}}
	for _, p := range phases {
		if p.Phase == nil {
			continue
		}
		add(true, p.Failed == 0 && p.Offered > 0, p.name+": every request is answered", "0 failed",
			"%d of %d failed %v %s", p.Failed, p.Offered, p.FailedBy, p.LastError)
		add(true, p.Denied == 0, p.name+": nobody far below a limit is denied", "0 denied", "%d", p.Denied)
		add(true, p.Agreement.Wrong == 0 && p.Agreement.Counts > 0, p.name+": all nodes count what was acknowledged",
			"0 counts wrong", "%d of %d, after %.1f s %s", p.Agreement.Wrong, p.Agreement.Counts, p.Agreement.Seconds,
			p.Agreement.First)
	}
	near, far := o.maxStaleness()
	for _, s := range []struct {
		where string
		max   time.Duration
		Staleness
	}{{"in a region", near, r.Steady.InRegion}, {"across regions", far, r.Steady.Across}} {
		if s.Samples+s.Missed > 0 {
			add(r.Steady.keptUp(o.Interval), s.Missed == 0 && s.P99Millis <= s.max.Seconds()*1000,
				"staleness "+s.where, fmt.Sprintf("p99 at most %d ms", s.max.Milliseconds()),
				"p50 %.0f, p99 %.0f, longest %.0f ms of %d, %d missed", s.P50Millis, s.P99Millis, s.MaxMillis,
				s.Samples, s.Missed)
		}
	}
	kept := r.Steady.keptUp(o.Interval) && (r.Rolling == nil || r.Rolling.keptUp(o.Interval))
	add(kept || r.Hot.Compliant > 0, // a client whose requests come late, and all at once, is not compliant
		r.Hot.FalseRejections == 0 && r.Hot.Compliant > 0, "the compliant client is never denied", "0 denied",
		"%d of %d", r.Hot.FalseRejections, r.Hot.Compliant)
	add(true, r.Hot.Violations == 0, "the excess stays within the bound", "0 seconds above it",
		"%d; excess at most %.1f %%, bound %.1f to %.1f %%", r.Hot.Violations, r.Hot.MaxPct, r.Hot.MinPct,
		r.Hot.BoundPct)
	add(true, r.Malformed == 0 && r.RefusedSlots == 0, "nodes read and believe each other", "0 frames, 0 slots",
		"%.0f, %.0f", r.Malformed, r.RefusedSlots)
	r.OK = !slices.ContainsFunc(r.Assertions, func(a Assertion) bool { return a.Judged && !a.OK })
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%d regions x %d nodes, T = %.0f ms: all see each other after %.0f s\n", r.Regions, r.Nodes,
		r.IntervalMillis, r.StartSeconds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tseconds\trequests\tlate ms\tpauses ms: longest\tp99 of seconds")
	line := func(name string, p *Phase) {
		fmt.Fprintf(t, "%s\t%.0f\t%d\t%.0f\t%.0f\t%.0f\n", name, p.Seconds, p.Offered, p.LateMillis, p.PauseMaxMillis,
			p.PauseP99Millis)
	}
	line("steady", &r.Steady)
	if r.Rolling != nil {
		line("rolling", r.Rolling)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	s := &r.Steady
	fmt.Fprintf(w, "a node: %.2f %% of a processor (the most %.2f %%), %.1f MiB (the most ever %.1f), %.1f frames/s, "+
		"%.1f kbit/s\nall nodes %.0f %% of a processor, the clients %.0f %%\n", s.CPUPct, s.CPUMaxPct, s.ResidentMiB,
		r.PeakMiB, s.FramesPerSec, s.KbitPerSec, s.FleetCPUPct, s.ClientCPUPct)
	if r.Rolling != nil {
		fmt.Fprintf(w, "a restart took at most %.1f s\n", r.RestartSeconds)
	}
	fmt.Fprintf(w, "hot clients: net %+.1f %% against the oracle\n", r.Hot.NetPct)
	for _, a := range r.Assertions {
		verdict := map[bool]string{true: "ok", false: "FAILED"}[a.OK]
		if !a.Judged && !a.OK {
			verdict = "not judged: the machine did not keep up"
		}
		if _, err := fmt.Fprintf(w, "%-7s %s: expected %s, got %s\n", verdict, a.What, a.Expected, a.Got); err != nil {
			return err
		}
	}
	return nil
}
