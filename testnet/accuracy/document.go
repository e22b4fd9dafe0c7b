package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	planner "github.com/edgelimit/edgelimit/testnet/plan"
)

// document is what is written: the goals, the tables of simulations, the ablation, and the fairness of the window
// itself.
type document struct {
	complete bool // all of it, not some sections
	sections []section
	curve    bool
	ablation bool
	fairness bool

	seeds   seeds
	results results
	costs   sheet // of the curve
	trials  []trial
}

const (
	curveTitle    = "What a node needs"
	ablationTitle = "Ablation"
	fairnessTitle = "Fairness of the window itself"
)

// open returns the document of the sections that have a word in their title; all without one.
func open(word string) (*document, error) {
	var titles []string
	has := func(title string) bool {
		titles = append(titles, title)
		return strings.Contains(strings.ToLower(title), strings.ToLower(word))
	}
	d := &document{complete: word == "", sections: sections()}
	d.sections = slices.DeleteFunc(d.sections, func(s section) bool { return !has(s.title) })
	d.curve, d.ablation, d.fairness = has(curveTitle), has(ablationTitle), has(fairnessTitle)
	if len(d.sections) == 0 && !d.curve && !d.ablation && !d.fairness {
		return nil, fmt.Errorf("no section has %q in its title: there are %q", word, titles)
	}
	return d, nil
}

// rows are those of the tables, as the goals judge them.
func (d *document) rows() (rows []row) {
	for _, s := range d.sections {
		rows = append(rows, s.rows...)
	}
	return rows
}

func (d *document) simulate(ctx context.Context, s seeds, workers int, run simulator, progress io.Writer) (err error) {
	d.seeds = s
	rows := d.rows()
	if d.ablation {
		for _, v := range variants {
			rows = append(rows, v.contests()...)
		}
	}
	if d.results, err = simulate(ctx, rows, s, workers, run, progress); err != nil {
		return err
	}
	if d.curve {
		if d.costs, err = curveSheet(ctx, planner.CurveSizes); err != nil {
			return err
		}
	}
	if d.fairness {
		d.trials, err = measureFairness()
	}
	return err
}

const curveNote = `The mean node, and the busiest, in clusters of so many nodes (regions x nodes). Each node has 6,667
live keys and as many requests a second, by the law of Zipf; 5 % of the keys are seen in three regions, and 5 % by two
nodes of a region. Beside it, what the same node would need if every node sent to every other one, as up to 16 nodes
do. A sample of the keys is simulated: 'edgelimit sim --regions R --nodes N --keys-total K' plans for any load.`

// curveSheet is what a node needs in clusters of some sizes.
func curveSheet(ctx context.Context, sizes [][2]int) (s sheet, err error) {
	s.title, s.note = curveTitle, strings.ReplaceAll(curveNote, "'", "`")
	s.head, s.rows, err = planner.Curve(ctx, sizes)
	return s, err
}

// contests are the rows of a variant.
func (v *variant) contests() (rows []row) {
	for _, c := range contests {
		rows = append(rows, row{name: c.name, change: with(c.change, v.change)})
	}
	return rows
}

// write writes the document as Markdown.
func (d *document) write(out io.Writer) error {
	var b strings.Builder
	var sheets []sheet
	if d.complete {
		fmt.Fprintf(&b, "# Accuracy\n\n%s", d.intro())
		sheets = append(sheets, d.goalSheet())
	}
	for _, s := range d.sections {
		sheets = append(sheets, d.sheet(s))
	}
	if d.curve {
		sheets = append(sheets, d.costs)
	}
	if d.ablation {
		sheets = append(sheets, d.ablationSheet())
	}
	if d.fairness {
		sheets = append(sheets, fairnessSheet(d.trials), greedySheet(d.trials))
	}
	for i := range sheets {
		sheets[i].write(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// introduction has ' for `, which a raw string cannot have.
const introduction = `How much more than its oracle a cluster admits, whom it rejects without need, what bound it
exports, and what it sends. The oracle is the same algorithm with instant knowledge of all nodes. 'make accuracy'
makes this file with simulations of the real counting and gossip code: the same command gives the same file on any
machine.

Where a row says nothing else, there are %d regions of %d nodes, a limit of %d per %v, gossip every %v, one way
%v between regions and %v inside, %g %% loss, requests at random moments for %v, and beside the load a client
that spends 95 %% of its limit evenly. Patterns: even (all nodes alike), skew (70 %% on one node), hotspot (80 %%
on a node that changes every 3 s), flash (0.5 times the limit, and 20 times for 1 s in every 20 s); "2x" is
how much is offered, as a multiple of the limit.
'edgelimit sim' with the flags in the last column and '--seed %d' to '%d' makes the runs of a row again.

A figure is the median over these seeds, with the worst one in brackets where it differs. Percentages are of the
limit:

- **net**: what was admitted against what the oracle would have, less 100.
- **peak**: the most by which a rolling window was fuller than that of the oracle at the same time, or than the
  limit where that is more.
- **rejected**: requests of clients that the oracle never counts above 95 %% of the limit and that were
  rejected, of how many; all seeds together.
- **bound**: the largest that a node exported; **factor**: the bound divided by the largest excess.
- **counted in the region, across**: how long until another node that is asked for the key counts what one admitted,
  in its region and in others.
- **agreed**: how long after the last request all nodes have the same counts.
- **kB/s, messages/s**: what a node sends, with IPv4, UDP and memberlist around it.
`

func (d *document) intro() string {
	o := reference()
	last := d.seeds.first + uint64(d.seeds.count) - 1
	return fmt.Sprintf(strings.ReplaceAll(introduction, "'", "`"), o.Regions, o.Nodes, o.Limit, o.Window, o.Interval,
		o.WANDelay, o.LANDelay, o.Loss*100, o.Duration, d.seeds.first, last)
}

func (d *document) goalSheet() sheet {
	s := sheet{title: "Goals", head: []string{"goal", "wanted", "median seed", "worst seed", "verdict"},
		note: "Of the rows that a goal is about, the worst. A count is of all its rows and seeds together."}
	for i := range goals {
		v := goals[i].judge(d.rows(), d.results)
		wanted := "at most " + number(v.max)
		if v.least > 0 {
			wanted = "at least " + number(v.least)
		}
		median, worst := number(v.median), number(v.worst)
		if v.figure == notMeasured {
			median, worst = "-", "-"
		}
		s.rows = append(s.rows, []string{v.text, wanted, median, worst, v.figure})
	}
	return s
}
