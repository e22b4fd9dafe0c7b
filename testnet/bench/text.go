package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// sheet is a table to print.
type sheet struct {
	title string
	note  string
	head  []string
	rows  [][]string
}

// style is a way to write text and sheets.
type style interface {
	intro(w io.Writer, title string, lines ...string) error
	sheet(w io.Writer, s sheet) error
}

// plain is for terminals: columns below each other, all but the first to the right.
type plain struct{}

func (plain) intro(w io.Writer, title string, lines ...string) error {
	_, err := fmt.Fprintf(w, "%s\n%s\n", title, strings.Join(lines, "\n"))
	return err
}

func (plain) sheet(w io.Writer, s sheet) error {
	widths := make([]int, len(s.head))
	for _, row := range append([][]string{s.head}, s.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", s.title)
	if s.note != "" {
		fmt.Fprintf(&b, "%s\n", s.note)
	}
	for _, row := range append([][]string{s.head}, s.rows...) {
		for i, c := range row {
			if i == 0 {
				fmt.Fprintf(&b, "%-*s", widths[i], c)
			} else {
				fmt.Fprintf(&b, "  %*s", widths[i], c)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown is for files.
type markdown struct{}

func (markdown) intro(w io.Writer, title string, lines ...string) error {
	_, err := fmt.Fprintf(w, "# %s\n\n%s\n", title, strings.Join(lines, "\n"))
	return err
}

func (markdown) sheet(w io.Writer, s sheet) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n", s.title)
	if s.note != "" {
		fmt.Fprintf(&b, "%s\n\n", s.note)
	}
	line := func(cells []string) {
		b.WriteByte('|')
		for _, c := range cells {
			fmt.Fprintf(&b, " %s |", strings.ReplaceAll(c, "|", `\|`))
		}
		b.WriteByte('\n')
	}
	line(s.head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(s.head)-1) + "\n")
	for _, row := range s.rows {
		line(row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes everything for people.
func (r *report) write(w io.Writer, st style) error {
	lines := []string{
		fmt.Sprintf("%s; %d rounds of %.0f ms a contestant and workload; %s.", r.Machine, r.Rounds, r.SliceMS, r.Redis),
		fmt.Sprintf("The machine gave %.0f %% of one core and %.0f %% of two (the median slice); what is missing of two is other work, or locks.",
			100*r.served(1), 100*r.served(2)),
		"Made by `make bench`, whose package comment says how. Compare ratios: the absolute figures are this machine's.",
	}
	if err := st.intro(w, "The counting engine beside others", lines...); err != nil {
		return err
	}
	sheets := []sheet{r.goalSheet(), r.timeSheet()}
	sheets = append(sheets, r.ratioSheet("Time of a decision, of x/time/rate's", func(t timing) float64 { return t.OfXTime }))
	sheets = append(sheets, r.ratioSheet("Time of a decision, of go-limiter's", func(t timing) float64 { return t.OfGoLimiter }))
	sheets = append(sheets, r.speedUpSheet(), r.budgetSheet(), r.footprintSheet(), r.mergeSheet())
	for _, s := range sheets {
		if len(s.rows) == 0 {
			continue
		}
		if err := st.sheet(w, s); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) goalSheet() sheet {
	s := sheet{title: "Goals", head: []string{"goal", "wanted", "measured", "verdict"}}
	for _, v := range r.Goals {
		wanted := "at most " + figure(v.Most)
		if v.Least > 0 {
			wanted = "at least " + figure(v.Least)
		}
		measured := figure(v.Measured)
		if v.Verdict == "not measured" {
			measured = "-"
		}
		s.rows = append(s.rows, []string{v.Goal, wanted, measured, v.Verdict})
	}
	return s
}

// names returns the contestants and workloads that were measured, in order.
func (r *report) names() (contestants, workloads []string) {
	for _, t := range r.Timings {
		if !slices.Contains(contestants, t.Contestant) {
			contestants = append(contestants, t.Contestant)
		}
		if !slices.Contains(workloads, t.Workload) {
			workloads = append(workloads, t.Workload)
		}
	}
	return contestants, workloads
}

// matrix makes a sheet of contestants by workloads.
func (r *report) matrix(title, note string, cell func(timing) string) sheet {
	contestants, workloads := r.names()
	s := sheet{title: title, note: note, head: append([]string{""}, workloads...)}
	for _, c := range contestants {
		row := []string{c}
		for _, l := range workloads {
			text := "-"
			if t, ok := r.timing(series{c, l}); ok {
				text = cell(t)
			}
			row = append(row, text)
		}
		s.rows = append(s.rows, row)
	}
	return s
}

func (r *report) timeSheet() sheet {
	s := r.matrix("Time of a decision, in ns",
		"Two cores: elapsed time over the decisions of both. Allocations: of a decision, the most of all workloads.",
		func(t timing) string { return figure(t.NS) })
	s.head = append(s.head, "allocations")
	for i, row := range s.rows {
		most := 0.0
		for _, t := range r.Timings {
			if t.Contestant == row[0] {
				most = max(most, t.Allocs)
			}
		}
		s.rows[i] = append(row, figure(quiet(most)))
	}
	return s
}

func (r *report) ratioSheet(title string, of func(timing) float64) sheet {
	return r.matrix(title, "", func(t timing) string { return figure(of(t)) })
}

func (r *report) speedUpSheet() sheet {
	s := sheet{title: "Two cores, as a multiple of one core's decisions a second",
		head: []string{"", "same key", "own keys", "1M uniform", "1M Zipf", "denied, same key"}}
	pairs := [][2]string{
		{loadHot, loadHotTwo}, {loadSome, loadSomeTwo}, {loadCold, loadColdTwo}, {loadZipf, loadZipfTwo}, {loadDenied, loadDeniedTwo},
	}
	contestants, _ := r.names()
	for _, c := range contestants {
		row := []string{c}
		for _, p := range pairs {
			text := "-"
			if up, ok := r.ratio(series{c, p[0]}, series{c, p[1]}); ok {
				text = figure(up)
			}
			row = append(row, text)
		}
		s.rows = append(s.rows, row)
	}
	return s
}

func (r *report) budgetSheet() sheet {
	s := sheet{title: "Bytes of the budget a key",
		note: "The budget over the keys that a full table holds; of a remote slot, by how much what is in use grows with each. In use: what the\n" +
			"table says.",
		head: []string{"", "budget, MiB", "keys", "bytes", "in use, a key"}}
	for _, b := range r.Budgets {
		s.rows = append(s.rows, []string{b.Name, fmt.Sprint(b.MiB), fmt.Sprint(b.Keys), figure(b.Bytes), figure(b.InUse)})
	}
	return s
}

func (r *report) footprintSheet() sheet {
	s := sheet{title: "A million keys",
		note: "Growth of the heap, identities that are kept included; a full garbage collection, and one with a block of as many bytes\n" +
			"without pointers.",
		head: []string{"", "bytes a key", "GC, ms", "block's GC, ms", "ratio"}}
	for _, f := range r.Footprints {
		s.rows = append(s.rows, []string{f.Name, figure(f.BytesPerKey), figure(f.GC), figure(f.BlockGC), figure(f.GC / f.BlockGC)})
	}
	if r.RedisBytes > 0 {
		s.rows = append(s.rows, []string{nameRedisRate + " (in Redis)", figure(r.RedisBytes), "-", "-", "-"})
	}
	return s
}

func (r *report) mergeSheet() sheet {
	s := sheet{title: "Merging what other origins tell",
		note: "Frames of 512 slots, all of them news, into cells with slots of so many origins in all sub-windows.",
		head: []string{"origins", "ns a slot", "allocations a slot"}}
	for _, m := range r.Merges {
		s.rows = append(s.rows, []string{fmt.Sprint(m.Origins), figure(m.NS), figure(quiet(m.Allocs))})
	}
	return s
}

// figure writes a number with three digits that count, and no more than are there.
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
