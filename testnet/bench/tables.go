package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// table is a Markdown table with a title. All columns but the first are numbers.
type table struct {
	title, note string
	head        []string
	rows        [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(&b, "%s\n\n", t.note)
	}
	line := func(cells []string) {
		b.WriteByte('|')
		for _, c := range cells {
			fmt.Fprintf(&b, " %s |", strings.ReplaceAll(c, "|", `\|`))
		}
		b.WriteByte('\n')
	}
	line(t.head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(t.head)-1) + "\n")
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// markdown returns RESULTS.md.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# The counting engine and its alternatives

%d CPUs, %s/%s, %s; %d rounds of %.0f ms per contestant and workload; %s.
The process got %.0f %% of one core and %.0f %% of two (the median slice); the rest of two went to other work,
or to locks. Written by `+"`make bench`"+`; the package comment explains the method. Compare ratios: the
absolute figures are this machine's.
`, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), r.duration.rounds, r.duration.slice.Seconds()*1e3,
		r.redis, 100*r.cpu(1), 100*r.cpu(2))
	for _, t := range []table{
		r.goalTable(), r.timeTable(), r.leastTable(), r.ratioTable("Time of a decision, of x/time/rate's", nameXTime),
		r.ratioTable("Time of a decision, of go-limiter's", nameGoLimiter), r.speedUpTable(), r.budgetTable(),
		r.footprintTable(), r.mergeTable(),
	} {
		if len(t.rows) > 0 {
			b.WriteString(t.markdown())
		}
	}
	return b.String()
}

func (r *report) goalTable() table {
	t := table{title: "Goals",
		note: "Times of a decision: the fastest slices of both, and the median of the ratios within the rounds.",
		head: []string{"goal", "wanted", "measured", "median", "verdict"}}
	for _, g := range goals {
		wanted := "at most " + figure(g.max)
		if g.min > 0 {
			wanted = "at least " + figure(g.min)
		}
		measured, verdict := g.judge(r)
		median := "-"
		if g.median != nil {
			if m, ok := g.median(r); ok {
				median = figure(m)
			}
		}
		t.add(g.text, wanted, measured, median, verdict)
	}
	return t
}

// matrix is a table of contestants by workloads, without rows and columns that have no cell.
func (r *report) matrix(title, note string, cell func(timing) (float64, bool)) table {
	t := table{title: title, note: note, head: []string{""}}
	cells := map[series]string{}
	var rows []string
	for _, m := range r.timings {
		v, ok := cell(m)
		if !ok {
			continue
		}
		cells[m.series] = figure(v)
		if !slices.Contains(t.head, m.workload) {
			t.head = append(t.head, m.workload)
		}
		if !slices.Contains(rows, m.contestant) {
			rows = append(rows, m.contestant)
		}
	}
	for _, name := range rows {
		row := []string{name}
		for _, load := range t.head[1:] {
			row = append(row, cmp.Or(cells[series{name, load}], "-"))
		}
		t.add(row...)
	}
	return t
}

func (r *report) timeTable() table {
	t := r.matrix("Time of a decision, in ns",
		"Two cores: elapsed time over the decisions of both. Allocations: per decision, the maximum of all workloads.",
		func(t timing) (float64, bool) { return t.ns, true })
	t.head = append(t.head, "allocations")
	for i, row := range t.rows {
		allocs := 0.0
		for _, m := range r.timings {
			if m.contestant == row[0] {
				allocs = max(allocs, m.allocs)
			}
		}
		t.rows[i] = append(row, figure(withoutNoise(allocs)))
	}
	return t
}

func (r *report) leastTable() table {
	return r.matrix("The same, in the fastest slice", "", func(t timing) (float64, bool) { return t.least, true })
}

func (r *report) ratioTable(title, to string) table {
	return r.matrix(title, "", func(t timing) (float64, bool) { return r.ratio(t.series, series{to, t.workload}) })
}

func (r *report) speedUpTable() table {
	return r.matrix("Two cores, as a multiple of one core's decisions a second", "", func(t timing) (float64, bool) {
		return r.ratio(t.series, series{t.contestant, t.workload + twoCores})
	})
}

func (r *report) budgetTable() table {
	t := table{title: "Bytes of the budget a key",
		note: "The budget over the keys that a full table holds; of a remote slot, the growth of the bytes in use. " +
			"In use: by\n" +
			"the table's statistics.",
		head: []string{"", "budget, MiB", "keys", "bytes", "in use, a key"}}
	for _, b := range r.budgets {
		t.add(b.name, fmt.Sprint(b.mib), fmt.Sprint(b.keys), figure(b.bytes), figure(b.inUse))
	}
	return t
}

func (r *report) footprintTable() table {
	t := table{title: "A million keys",
		note: "Growth of the heap, with the identities that are kept; a full garbage collection, and one with a " +
			"block of as\n" +
			"many bytes without pointers.",
		head: []string{"", "bytes a key", "GC, ms", "block's GC, ms", "ratio"}}
	for _, f := range r.footprints {
		t.add(f.name, figure(f.bytesPerKey), figure(f.gcMS), figure(f.blockGCMS), figure(f.gcMS/f.blockGCMS))
	}
	if r.redisBytes > 0 {
		t.add(nameRedisRate+" (in Redis)", figure(r.redisBytes), "-", "-", "-")
	}
	return t
}

func (r *report) mergeTable() table {
	t := table{title: "Merging slots of other origins",
		note: "Frames of 512 slots, all of them new, into cells with slots of that many origins in all sub-windows.",
		head: []string{"origins", "ns a slot", "allocations a slot"}}
	for _, m := range r.merges {
		t.add(fmt.Sprint(m.origins), figure(m.ns), figure(withoutNoise(m.allocs)))
	}
	return t
}

// figure formats a number with three significant digits.
func figure(v float64) string {
	switch {
	case v == float64(int64(v)) && v < 1e6:
		return fmt.Sprint(int64(v))
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.0995:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
