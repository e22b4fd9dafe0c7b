package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// everyRow calls f for each row of the document.
func everyRow(t *testing.T, f func(title string, r *row)) {
	t.Helper()
	d, err := open("")
	testkit.Must(t, err)
	for _, s := range d.sections {
		for i := range s.rows {
			f(s.title, &s.rows[i])
		}
	}
	for _, v := range variants {
		rows := v.contests()
		for i := range rows {
			f(ablationTitle+", "+v.name, &rows[i])
		}
	}
}

// Each row can be simulated, is told apart from others of its table, and is all in its command: it has nothing changed
// that has no flag.
func TestRows(t *testing.T) {
	seen := make(map[string]bool)
	everyRow(t, func(title string, r *row) {
		o, usual := r.options(), sim.DefaultOptions()
		if err := o.Validate(); err != nil {
			t.Errorf("%s, %s: %v", title, r.name, err)
		}
		if name := title + ": " + r.name; seen[name] {
			t.Errorf("%s stands there twice", name)
		} else {
			seen[name] = true
		}
		if o.Jitter != usual.Jitter || o.Trace != nil || o.Store || o.Start != 0 || len(o.Pauses)+len(o.Crashes) > 0 ||
			o.Seed != usual.Seed {
			t.Errorf("%s, %s: %+v has no command", title, r.name, o)
		}
		if again := r.options(); !reflect.DeepEqual(o, again) {
			t.Errorf("%s, %s: its options differ from one time to the next", title, r.name)
		}
	})
	if len(seen) < 60 {
		t.Errorf("only %d rows", len(seen))
	}
}

// No two scenarios have the same command.
func TestCommandsTellScenariosApart(t *testing.T) {
	commands := make(map[string]string)
	everyRow(t, func(_ string, r *row) {
		o := r.options()
		c := command(&result{options: o})
		if other, ok := commands[c]; ok && other != keyOf(o) {
			t.Errorf("two scenarios are %s", c)
		}
		commands[c] = keyOf(o)
	})
}

// What rows are judged by is a goal, and every goal has rows but for that of a policy that does not exist yet.
func TestRowsAndGoalsMeet(t *testing.T) {
	var judged []string
	everyRow(t, func(title string, r *row) {
		for _, name := range r.goals {
			judged = append(judged, name)
			if !slices.ContainsFunc(goals, func(g goal) bool { return g.rows == name }) {
				t.Errorf("%s, %s: there is no goal %q", title, r.name, name)
			}
		}
	})
	for _, g := range goals {
		if policy, ok := strings.CutPrefix(g.rows, goalCut); ok && policy != "" &&
			!slices.ContainsFunc(policies, func(v variant) bool { return v.name == policy }) {
			continue
		}
		if g.rows != "" && !slices.Contains(judged, g.rows) {
			t.Errorf("no row is judged by %q", g.text)
		}
	}
}

func TestOpen(t *testing.T) {
	if d, err := open("cut off"); err != nil || d.complete || len(d.sections) != 1 || d.ablation || d.fairness {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := open("ABLATION"); err != nil || len(d.sections) != 0 || !d.ablation {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := open("no such"); err == nil || !strings.Contains(err.Error(), `"The reference"`) {
		t.Errorf("%v", err)
	}
}
