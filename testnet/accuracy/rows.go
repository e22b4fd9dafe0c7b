package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/sim"
)

// section is a table of the document.
type section struct {
	title, note string
	columns     []column
	rows        []row
}

// row is a scenario: the reference with something changed.
type row struct {
	name   string
	goals  []string // what it is judged by, see goals.go
	change func(*sim.Options)
	max    int             // seeds at most, where a run takes long; 0: as many as asked for
	beside map[string]*row // by goal: what the row is held against
}

// reference is what every row begins with: the simulator's default, and a client beside the load that keeps to its
// limit.
func reference() sim.Options {
	o := sim.DefaultOptions()
	o.Compliant = 1
	return o
}

func (r *row) options() sim.Options {
	o := reference()
	if r.change != nil {
		r.change(&o)
	}
	return o
}

// with makes several changes one.
func with(changes ...func(*sim.Options)) func(*sim.Options) {
	return func(o *sim.Options) {
		for _, change := range changes {
			change(o)
		}
	}
}

func offered(p sim.Pattern, load float64) func(*sim.Options) {
	return func(o *sim.Options) {
		if o.Pattern = p; p.HasLoad() {
			o.Load = load
		}
	}
}

func every(interval time.Duration) func(*sim.Options) {
	return func(o *sim.Options) { o.Interval = interval }
}

// noise is what a bad network does to packets beside losing some.
func noise(o *sim.Options) { o.Duplicate, o.Reorder = 0.05, 0.05 }

// variants are what the ablation compares: ways to decide, each with one part more or less than another.
var variants = []variant{
	{"plain", func(o *sim.Options) { o.Strategy = sim.Plain }},
	{"with proof and thinning", func(o *sim.Options) { o.Strategy = sim.NoEarlyFlush }},
	{"and early flush: a node", func(o *sim.Options) { o.Strategy = sim.Proof }},
}

// policies are what a rule may say of partitions (on_partition).
var policies = []variant{
	{"share", func(*sim.Options) {}},
	{"local", func(o *sim.Options) { o.OnPartition = counters.Local }},
}

type variant struct {
	name   string
	change func(*sim.Options)
}

// seconds is a duration in whole seconds.
func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// sections are all tables that come from simulations, in their order. To add a row is to add a line here.
func sections() []section {
	all := []section{
		{title: "The reference", columns: usual, rows: append(steady(), surprises()...),
			note: "3 regions of 4 nodes, a limit of 1000 per 10 s, gossip every 100 ms."},
		{title: "Gossip every 50 ms", columns: usual, rows: at(50*time.Millisecond, append(steady(), flash()))},
		{title: "Gossip every 200 ms", columns: usual, rows: at(200*time.Millisecond, append(steady(), flash()))},
		{title: "Compliant bursts", columns: usual, rows: bursts(),
			note: "Clients that spend 95 % of the limit in a burst, again and again, each as soon as the last\n" +
				"does not count any more. With 5 % loss, 5 % of the packets twice and 5 % held back for up to " +
				"a second."},
		{title: "A region cut off for 30 s", columns: cuts, rows: partitions(),
			note: "Region 2 of three, from second 20 to 50 of 80."},
		{title: "Clocks that differ", columns: usual, rows: clocks(),
			note: "Each clock is wrong by up to so much, either way."},
		{title: "Bad networks", columns: usual, rows: networks()},
		{title: "Redis in trouble", columns: stores, rows: troubles(),
			note: "Of every region at once. After its faults, each node has two flushes to make good what a Redis\n" +
				"lost. It is the real reconciler, with a store in memory that fails as a Redis does. Lost, lacking " +
				"and\n" +
				"twice are slots: counts of one node for a client in a sub-window."},
		{title: "A window of a second", columns: usual, rows: short(),
			note: "What happened within the last round trip is a large part of such a window."},
		{title: "Small limits", columns: usual, rows: small(),
			note: "Twelve nodes, each of which may admit a request before it receives the counts of the others."},
		{title: "Every algorithm", columns: usual, rows: algorithms()},
	}
	return slices.Insert(all, 3, sizeSections()...)
}

// steady are patterns that stay as they are.
func steady() (rows []row) {
	for _, p := range []sim.Pattern{sim.Even, sim.Skew, sim.Hotspot} {
		for _, load := range []float64{2, 5} {
			r := row{name: fmt.Sprintf("%s %gx", p, load), goals: []string{goalSteady}, change: offered(p, load)}
			if p == sim.Even && load == 2 {
				r.goals = append(r.goals, goalTight)
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func flash() row {
	return row{name: "flash", goals: []string{goalFlash}, change: offered(sim.Flash, 0)}
}

// at has rows tell each other at another interval.
func at(interval time.Duration, rows []row) []row {
	for i, r := range rows {
		rows[i].change = with(r.change, every(interval))
	}
	return rows
}

func surprises() (rows []row) {
	for _, p := range []sim.Pattern{sim.Even, sim.Skew, sim.Hotspot} {
		rows = append(rows, row{name: string(p) + " 20x", goals: []string{goalSurprise}, change: offered(p, 20)})
	}
	return append(rows, flash())
}

// bursting is clients that keep to the limit, and spend it in bursts.
func bursting(o *sim.Options) { o.Pattern, o.Keys, o.Compliant = sim.CompliantBurst, sim.BurstKeys, 0 }

func bursts() (rows []row) {
	add := func(name string, seeds int, changes ...func(*sim.Options)) {
		change := with(bursting, noise, with(changes...))
		rows = append(rows, row{name: name, goals: []string{goalFair}, change: change, max: seeds})
	}
	for _, length := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second} {
		for _, where := range sim.Placements {
			add(fmt.Sprintf("in %v, %s", length, where), 0,
				func(o *sim.Options) { o.Burst, o.BurstAt = length, where })
		}
	}
	add("all in turn, every 50 ms", 0, every(50*time.Millisecond))
	add("all in turn, every 200 ms", 0, every(200*time.Millisecond))
	add("all in turn, 120 clients for 10 minutes", 2,
		func(o *sim.Options) { o.Keys, o.Duration = 10*sim.BurstKeys, 10*time.Minute })
	return rows
}

// cut is a partition of a region.
func cut(p sim.Partition) func(*sim.Options) {
	p.From, p.Until = seconds(20), seconds(50)
	return func(o *sim.Options) { o.Partitions, o.Duration = []sim.Partition{p}, seconds(80) }
}

func partitions() (rows []row) {
	for _, policy := range policies {
		for _, p := range []sim.Pattern{sim.Even, sim.Skew} {
			rows = append(rows, row{name: fmt.Sprintf("%s 2x, %s", p, policy.name),
				goals:  []string{goalCut, goalCut + policy.name},
				change: with(policy.change, offered(p, 2), cut(sim.Partition{A: 2}))})
		}
		rows = append(rows, row{name: fmt.Sprintf("even 2x, isolated one way, %s", policy.name),
			change: with(policy.change, cut(sim.Partition{A: 2, OneWay: true}))})
	}
	return rows
}

func clocks() (rows []row) {
	for _, skew := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		rows = append(rows, row{name: fmt.Sprintf("even 2x, %v", skew), change: func(o *sim.Options) { o.Skew = skew }})
	}
	return rows
}

func networks() []row {
	return []row{
		{name: "no loss", change: func(o *sim.Options) { o.Loss = 0 }},
		{name: "30 % loss", goals: []string{goalDrift}, change: func(o *sim.Options) { o.Loss = 0.3 }},
		{name: "30 % loss, 20 % twice, 20 % held back", goals: []string{goalDrift},
			change: func(o *sim.Options) { o.Loss, o.Duplicate, o.Reorder = 0.3, 0.2, 0.2 }},
		{name: "200 ms one way", change: func(o *sim.Options) { o.WANDelay = 200 * time.Millisecond }},
	}
}

func troubles() (rows []row) {
	for _, t := range [][2]string{
		{"down for 10 s", "down@20s-30s"},
		{"10 s without an answer", "mute@20s-30s"},
		{"slow for 20 s", "slow@20s-40s"},
		{"every call twice", "twice@0s-60s"},
		{"FLUSHALL, twice", "flush@20s flush@40s"},
		{"restarted empty", "restart@20s"},
		{"a replica 3 s behind takes over", "stale@17s-20s"},
		{"the same, unnoticed", "rewind@17s-20s"},
		{"FLUSHALL and no answer", "flush@20s mute@20s-22s"},
		{"slow, flushed and failed over", "slow@20s-40s flush@25s rewind@27s-30s stale@32s-35s"},
	} {
		rows = append(rows, row{name: t[0], goals: []string{goalRedis}, change: befalls(t[1])})
	}
	const everything = "slow@20s-40s twice@10s-50s down@22s-24s flush@25s rewind@27s-30s mute@30s-33s stale@32s-35s " +
		"restart@37s"
	return append(rows, row{name: "everything at once, 20 clients, 30 % loss", goals: []string{goalRedis},
		change: with(befalls(everything), func(o *sim.Options) { o.Keys, o.Limit, o.Loss = 20, 100, 0.3 })})
}

// befalls has faults befall the stores.
func befalls(faults string) func(*sim.Options) {
	return func(o *sim.Options) {
		for s := range strings.FieldsSeq(faults) {
			f, err := sim.ParseStoreFault(s)
			if err != nil {
				panic(err) // of what is written here
			}
			o.StoreFaults = append(o.StoreFaults, f)
		}
	}
}

func short() []row {
	second := func(o *sim.Options) { o.Window, o.Limit = time.Second, 100 }
	near := func(o *sim.Options) { o.WANDelay = 10 * time.Millisecond }
	often := with(second, every(50*time.Millisecond))
	return []row{
		{name: "even 2x, every 100 ms", change: second},
		{name: "even 2x, every 50 ms", change: often},
		{name: "even 2x, every 50 ms, 10 ms between regions", change: with(often, near)},
	}
}

func small() (rows []row) {
	for _, limit := range []uint64{5, 20} {
		for _, p := range []sim.Pattern{sim.Even, sim.Skew} {
			rows = append(rows, row{name: fmt.Sprintf("%s 2x, a limit of %d", p, limit),
				change: with(offered(p, 2), func(o *sim.Options) { o.Limit = limit })})
		}
	}
	return rows
}

func algorithms() (rows []row) {
	for _, a := range sim.Algorithms {
		by := func(o *sim.Options) { o.Method = a }
		rows = append(rows,
			row{name: fmt.Sprintf("%s, even 2x", a), change: by},
			row{name: fmt.Sprintf("%s, flash", a), change: with(by, offered(sim.Flash, 0))},
			row{name: fmt.Sprintf("%s, compliant-burst", a), goals: []string{goalFair}, change: with(by, bursting)})
	}
	return rows
}

// contests are what the ablation puts each variant to.
var contests = []row{
	{name: "even 2x", change: offered(sim.Even, 2)},
	{name: "skew 2x", change: offered(sim.Skew, 2)},
	{name: "hotspot 2x", change: offered(sim.Hotspot, 2)},
	{name: "even 5x", change: offered(sim.Even, 5)},
	{name: "even 20x, first window included", change: offered(sim.Even, 20)},
	{name: "flash", change: offered(sim.Flash, 0)},
	{name: "one of three regions cut 30 s, even 2x", change: cut(sim.Partition{A: 2})},
	{name: "compliant bursts", change: bursting},
}
