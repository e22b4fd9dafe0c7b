package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// What operators do to a cluster that serves: nobody may notice. The clients of these scenarios, by what they have used
// of accountLimit before the load.
const (
	spentClient = "spent" // all of it
	raceClient  = "race"  // all but raceRoom, which it uses up under the load, at all nodes
	ownClient   = "own"   // little: what is counted of it in the end is what was admitted

	accountLimit = 20_000 // of accountRule
	raceRoom     = 200
)

// upkeep returns what the scenarios of operators have in common.
func upkeep(name, what string, check func(r *Run), steps ...Step) Scenario {
	return Scenario{
		Name: name, What: what, Rule: accountRule, Takes: 60 * time.Second, Steps: steps,
		Used: map[string]uint64{spentClient: accountLimit, raceClient: accountLimit - raceRoom},
		Streams: []traffic.Stream{{Identity: spentClient, Rate: 48, Spacing: traffic.Even},
			{Identity: raceClient, Rate: 24, Spacing: traffic.Even}, {Identity: ownClient, Rate: 48}},
		Check: func(r *Run) {
			check(r)
			checkKept(r)
		},
	}
}

// checkKept asserts that nothing was forgotten, and that nothing was admitted beyond what the nodes said.
func checkKept(r *Run) {
	spent := r.Admitted(r.ID(spentClient), "")
	r.Assert("a limit that is used up stays used up at every node", spent == accountLimit,
		fmt.Sprintf("%d admitted, all of it before", accountLimit), "%d", spent)
	race, bound := r.Admitted(r.ID(raceClient), ""), 0.0
	for _, o := range r.record.observations {
		bound = max(bound, o.Bound)
	}
	r.Assert("no more than limit and bound is admitted over the run",
		race >= accountLimit && float64(race) <= accountLimit*(1+bound),
		fmt.Sprintf("%d to %.0f admitted", accountLimit, accountLimit*(1+bound)), "%d", race)
	admitted := r.Admitted(r.ID(ownClient), "")
	counts, err := r.Counts(context.Background(), r.rule.Name, r.ID(ownClient))
	same := len(counts) == len(r.Nodes)
	for _, n := range counts {
		same = same && n == admitted
	}
	r.Assert("in the end all nodes count what was admitted", same && admitted > primeCost, fmt.Sprint(admitted),
		"%v%s", counts, errorText(err))
}

// restart is a node that was away, on purpose, from before it was asked to end until all were together again.
type restart struct {
	node     string
	from, to time.Time
	began    time.Time // the new process
}

// loss is a line of a node's log by which it lost another one.
type loss struct {
	at         time.Time
	node, peer string // peer is empty where the line names several, or a region
	line       string
}

// lossMarks begin what nodes log when others leave, are given up, or become unreachable.
var lossMarks = []string{`msg="gossip: member gone"`, `msg="peers cannot be reached`, `msg="a region cannot be reached`,
	`msg="no other node of this region can be reached`}

// losses returns what a node's log says of lost nodes from a time on.
func losses(node, log string, since time.Time) (all []loss) {
	for line := range strings.Lines(log) {
		stamp, rest, ok := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if !ok || !slices.ContainsFunc(lossMarks, func(m string) bool { return strings.Contains(rest, m) }) {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || at.Before(since) {
			continue
		}
		l := loss{at: at, node: node, line: strings.TrimSpace(rest)}
		for word := range strings.FieldsSeq(rest) {
			name, value, _ := strings.Cut(word, "=")
			switch {
			case name == "peer":
				l.peer = value
			case name == "peers" && strings.Contains(rest, " count=1 "):
				_, l.peer, _ = strings.Cut(value, "/") // after its region
			}
		}
		all = append(all, l)
	}
	return all
}

// unexpected returns the losses that no restart explains: at that time neither the node nor its peer was away.
func unexpected(all []loss, restarts []restart) (lost []loss) {
	for _, l := range all {
		if !slices.ContainsFunc(restarts, func(s restart) bool {
			return !l.at.Before(s.from) && !l.at.After(s.to) && (s.node == l.node || s.node == l.peer)
		}) {
			lost = append(lost, l)
		}
	}
	return lost
}

// checkMembers asserts that no node ever lost another one that was not being restarted: by what it was observed to see,
// once a second, and by its log, which knows of what was shorter.
func checkMembers(r *Run) {
	all, err := r.Cluster.Nodes(context.Background())
	lowest := make(map[string]int)
	for _, o := range r.record.observations {
		others, away := len(all)-1, 0
		for _, s := range r.restarts {
			if o.Done >= s.from.UnixNano() && o.Sent <= s.to.UnixNano() {
				away = 1
				if s.node == o.Node {
					away = others
				}
			}
		}
		if o.Members < others-away {
			if known, ok := lowest[o.Node]; !ok || o.Members < known {
				lowest[o.Node] = o.Members
			}
		}
	}
	r.Assert("no node is seen without another one", len(lowest) == 0 && len(r.record.observations) > 0 && err == nil,
		fmt.Sprintf("%d others, but for who is restarted", len(all)-1), "%v in %d observations%s", lowest,
		len(r.record.observations), errorText(err))
	var logged []loss
	for _, n := range all {
		text, failed := r.logs(context.Background(), n.Name)
		err = errors.Join(err, failed)
		logged = append(logged, losses(n.Name, text, r.started)...)
	}
	lost := unexpected(logged, r.restarts)
	for _, l := range lost {
		r.log("  %s: %s", l.node, l.line)
	}
	first := ""
	if len(lost) > 0 {
		first = fmt.Sprintf(", first %s: %s", lost[0].node, lost[0].line)
	}
	r.Assert("no node logs that it lost another one", len(lost) == 0 && err == nil, "0 members lost", "%d%s%s",
		len(lost), first, errorText(err))
	noticed := make(map[string]bool)
	for _, l := range logged {
		noticed[l.peer] = true
	}
	unseen := slices.DeleteFunc(slices.Clone(r.restarts), func(s restart) bool { return noticed[s.node] })
	r.Assert("the logs tell who leaves", len(unseen) == 0, "a line for each restart", "%d without", len(unseen))
}

func rolling() Scenario {
	s := upkeep("rolling", "all nodes are restarted in turn, under load that asks readiness first: 0 failed requests, "+
		"0 members lost, and no count is forgotten",
		func(r *Run) {
			checkMembers(r)
			checkAsked(r)
		},
		wait("load in all regions", 3*time.Second),
		Step{"restart every node in turn", restartAll},
		wait("load after that", 2*time.Second))
	s.Balanced = true
	return s
}

// restartAll restarts one node after the other.
func restartAll(ctx context.Context, r *Run) error {
	for _, n := range r.Nodes {
		if _, err := r.restartNode(ctx, n, Cluster.Restart); err != nil {
			return err
		}
	}
	return nil
}

// restartNode ends a node and starts it again: SIGTERM, the linger, the drain, a new process, ready, together. It
// returns what the new process reports.
func (r *Run) restartNode(ctx context.Context, n cluster.Node, start action) (after cluster.Observation, err error) {
	before, err := r.Cluster.Observe(ctx, n)
	if err != nil {
		return after, err
	}
	s := restart{node: n.Name, from: time.Now()}
	if err := r.Begin(ctx, record.Stop, n.Name, Cluster.Stop, start); err != nil {
		return after, err
	}
	if err := r.End(ctx); err != nil {
		return after, err
	}
	s.to = time.Now()
	after, err = r.Cluster.Observe(ctx, n)
	s.began = after.Started
	if err == nil && !after.Started.After(before.Started) {
		err = fmt.Errorf("%s is the process that it was: the restart did not take hold", n.Name)
	}
	if err == nil {
		r.restarts = append(r.restarts, s)
		r.Observed("%s is back after %.1f s", n.Name, s.to.Sub(s.from).Seconds())
	}
	return after, err
}

// checkAsked asserts that every restarted node was asked again for what it must not have forgotten, and at once.
func checkAsked(r *Run) {
	const soon = time.Second
	asked := make(map[string]int)
	for _, s := range r.restarts {
		for _, d := range r.decisions(func(d record.Decision) bool {
			return d.Node == s.node && d.Identity == r.ID(spentClient) && d.Sent > s.began.UnixNano() &&
				d.Sent < s.to.Add(soon).UnixNano() && d.Error == ""
		}) {
			asked[d.Node]++
		}
	}
	least := 0
	if len(asked) == len(r.Nodes) {
		least = slices.Min(slices.Collect(maps.Values(asked)))
	}
	r.Assert("every restarted node is asked for it again", least > 0,
		fmt.Sprintf("%d nodes, within %g s of being together", len(r.Nodes), soon.Seconds()), "%v", asked)
	longest := time.Duration(0)
	for _, s := range r.restarts {
		longest = max(longest, s.to.Sub(s.from))
	}
	r.Figure("restart_s", longest.Seconds())
}
