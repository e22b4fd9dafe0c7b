package sim

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Trace is arrivals that were recorded somewhere, of one client.
type Trace struct {
	Regions  int // that it names
	Nodes    int // that it names in one region, at most
	arrivals []traced
}

type traced struct {
	after        int64 // ns since the start
	region, node int32
}

// What a trace may be: it is held in memory, at 16 bytes a line.
const (
	maxTraceLines = 20_000_000
	maxTraceLine  = 512 // bytes
	maxTraceName  = 64  // bytes
)

// ReadTrace reads a CSV of arrivals, one a line: `seconds,region,node`. Seconds count from the start of the run and may
// have a fraction. Regions and nodes are names, each taken for the next region, and the next node of it, where it
// appears first. Lines need not be in order; empty lines, those that begin with #, and a header line at the beginning
// are skipped. An error names the line.
func ReadTrace(r io.Reader) (*Trace, error) {
	t := &tracer{regions: make(map[string]int32)}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxTraceLine), maxTraceLine)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.TrimSpace(line) == "" || line[0] == '#' || number == 1 && isHeader(line) {
			continue
		}
		if err := t.add(line); err != nil {
			return nil, fmt.Errorf("trace, line %d: %w", number, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("trace: a line of more than %d bytes, after %d arrivals", maxTraceLine, len(t.arrivals))
	} else if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if len(t.arrivals) == 0 {
		return nil, errors.New("trace: no arrivals")
	}
	slices.SortStableFunc(t.arrivals, func(a, b traced) int { return cmp.Compare(a.after, b.after) })
	return &t.Trace, nil
}

// tracer is a trace that is being read.
type tracer struct {
	Trace
	regions map[string]int32   // by name
	nodes   []map[string]int32 // of each region
}

func (t *tracer) add(line string) error {
	after, region, node, err := parseArrival(line)
	if err != nil {
		return err
	}
	if len(t.arrivals) == maxTraceLines {
		return fmt.Errorf("more than %d arrivals", maxTraceLines)
	}
	at, ok := t.regions[region]
	if !ok {
		at = int32(len(t.regions))
		t.regions[region] = at
		t.nodes = append(t.nodes, make(map[string]int32))
	}
	place, ok := t.nodes[at][node]
	if !ok {
		place = int32(len(t.nodes[at]))
		t.nodes[at][node] = place
	}
	t.Regions, t.Nodes = len(t.regions), max(t.Nodes, len(t.nodes[at]))
	if t.Regions*t.Nodes > maxNodes {
		return fmt.Errorf("%d regions of %d nodes, at most %d nodes in all", t.Regions, t.Nodes, maxNodes)
	}
	t.arrivals = append(t.arrivals, traced{after, at, place})
	return nil
}

func isHeader(line string) bool {
	return strings.ReplaceAll(strings.ToLower(line), " ", "") == "seconds,region,node"
}

func parseArrival(line string) (after int64, region, node string, err error) {
	if n := strings.Count(line, ",") + 1; n != 3 {
		return 0, "", "", fmt.Errorf("%d fields, want seconds,region,node", n)
	}
	seconds, rest, _ := strings.Cut(line, ",")
	region, node, _ = strings.Cut(rest, ",")
	at, err := strconv.ParseFloat(strings.TrimSpace(seconds), 64)
	if err != nil || math.IsNaN(at) {
		return 0, "", "", fmt.Errorf("%.40q is no number of seconds", seconds)
	}
	if at < 0 || at >= maxDuration.Seconds() {
		return 0, "", "", fmt.Errorf("%g seconds, want at least 0 and less than %g", at, maxDuration.Seconds())
	}
	region, node = strings.TrimSpace(region), strings.TrimSpace(node)
	for _, name := range []string{region, node} {
		if name == "" || len(name) > maxTraceName || !utf8.ValidString(name) {
			return 0, "", "", fmt.Errorf("%.40q is no name: want 1 to %d bytes", name, maxTraceName)
		}
	}
	return int64(at * float64(time.Second)), region, node, nil
}

// Len is the number of arrivals.
func (t *Trace) Len() int { return len(t.arrivals) }

// Duration is until the end of the millisecond of the last arrival.
func (t *Trace) Duration() time.Duration {
	last := time.Duration(t.arrivals[len(t.arrivals)-1].after)
	return min(last.Truncate(time.Millisecond)+time.Millisecond, maxDuration)
}

func (t *Trace) fits(regions, nodes int) bool { return t.Regions <= regions && t.Nodes <= nodes }

func (t *Trace) source(o *Options) source {
	return &replay{left: t.arrivals, nodes: o.Nodes, end: int64(o.Duration)}
}

type replay struct {
	left  []traced
	nodes int
	end   int64
}

func (r *replay) next() (arrival, bool) {
	if len(r.left) == 0 || r.left[0].after >= r.end {
		return arrival{}, false
	}
	a := r.left[0]
	r.left = r.left[1:]
	return arrival{after: a.after, node: int(a.region)*r.nodes + int(a.node)}, true
}
