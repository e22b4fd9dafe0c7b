package main

import (
	"fmt"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

// size is a cluster of the tables that compare sizes.
type size struct {
	title          string
	regions, nodes int
	lasts          int // seconds of a row
	seeds          int // at most; 0: as many as elsewhere
}

// sizes are all of them. The others are held against the first.
var sizes = []size{
	{"12 nodes, beside larger clusters", 3, 4, 60, 0},
	{"120 nodes", 3, 40, 60, 0},
	{"500 nodes", 10, 50, 30, 3},
	{"1,500 nodes", 30, 50, 20, 1},
}

// What befalls a row of these tables lasts from faultFrom to faultUntil, and a surprise is judged over surpriseLasts.
const (
	faultFrom     = 6
	faultUntil    = 13
	surpriseLasts = 60
)

// sizeSections are the same rows for each size.
func sizeSections() (out []section) {
	smallest := sizes[0].rows(nil)
	for i, s := range sizes {
		t := section{title: s.title, columns: sized, rows: smallest}
		t.note = fmt.Sprintf("%d regions of %d nodes, for %d s", s.regions, s.nodes, s.lasts)
		if s.lasts != surpriseLasts {
			t.note += fmt.Sprintf(" (even 20x and flash for %d s)", surpriseLasts)
		}
		t.note += "."
		if i > 0 {
			t.rows = s.rows(smallest)
		}
		out = append(out, t)
	}
	return out
}

// rows are the scenarios at a size. smallest are those of the smallest size, nil for itself.
func (s *size) rows(smallest []row) (rows []row) {
	add := func(name, goal string, changes ...func(*sim.Options)) *row {
		changes = append(changes, func(o *sim.Options) {
			o.Regions, o.Nodes, o.Duration = s.regions, s.nodes, seconds(s.lasts)
			if goal == goalSizeSurprise {
				o.Duration = seconds(surpriseLasts)
			}
		})
		r := row{name: name, change: with(changes...), max: s.seeds, beside: make(map[string]*row)}
		if goal != "" && smallest != nil {
			r.goals, r.beside[goal] = []string{goal}, &smallest[len(rows)]
		}
		rows = append(rows, r)
		return &rows[len(rows)-1]
	}
	for _, r := range steady() {
		add(r.name, goalSizeSteady, r.change)
	}
	undisturbed := rows[0]
	add("even 20x", goalSizeSurprise, offered(sim.Even, 20))
	add("flash", goalSizeSurprise, offered(sim.Flash, 0))
	add("compliant bursts", "", bursting)
	cut := *add("a region cut, even 2x", "", offered(sim.Even, 2), func(o *sim.Options) {
		o.Partitions = []sim.Partition{{A: 2, From: seconds(faultFrom), Until: seconds(faultUntil)}}
	})
	for _, f := range []struct {
		name string
		kind sim.NodeFaultKind
	}{
		{"an owner killed", sim.OwnerDown}, {"two owners at once", sim.TwoOwners},
		{"all gateways of a region gone", sim.GatewaysDown},
	} {
		r := add(f.name+", even 2x", "", offered(sim.Even, 2), func(o *sim.Options) {
			o.NodeFaults = []sim.NodeFault{
				{Kind: f.kind, Region: 2, From: seconds(faultFrom), Until: seconds(faultUntil)},
			}
		})
		if f.kind == sim.OwnerDown {
			r.goals = []string{goalOwnerDown, goalOwnerBound}
			r.beside[goalOwnerDown], r.beside[goalOwnerBound] = &undisturbed, &cut
		}
	}
	return rows
}
