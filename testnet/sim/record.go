package sim

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// observeFor is how long nodes are observed after the last request.
const observeFor = 4 * time.Second

// Record simulates, and returns the record that a client beside a testnet would have kept: every decision, what each
// node reports of itself once a second, and partitions of one region. Clients are named by their numbers.
func Record(ctx context.Context, o Options) (record.Header, []record.Entry, error) {
	return recordRun(ctx, o, noHooks(), func(*cluster) {})
}

// recordRun is Record with hooks, and with something to do before the first event.
func recordRun(
	ctx context.Context, o Options, h hooks, prepare func(*cluster),
) (header record.Header, entries []record.Entry, err error) {
	draw := o.stream(drawRecord)
	answerTime := func() int64 { return draw.Int64N(int64(2 * time.Millisecond)) }
	var c *cluster
	h.taken = func(n *node, client int, at int64, d counters.Decision) {
		entries = append(entries, record.Entry{Decision: &record.Decision{
			Sent: max(c.startAt, at-answerTime()), Done: at + answerTime(), Node: n.id(), Region: n.regionName(),
			Identity: strconv.Itoa(client), Cost: 1, Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		}})
	}
	if c, err = newCluster(o, h); err != nil {
		return header, nil, err
	}
	defer c.close()
	prepare(c)
	header = record.Header{Started: c.startAt, Rule: record.NewRule(c.limit)}
	for i, n := range c.nodes {
		header.Nodes = append(header.Nodes, record.Node{ID: n.id(), Region: n.regionName()})
		first := c.startAt + int64(time.Second)*int64(i)/int64(len(c.nodes))
		for at := first; at < c.endAt+int64(observeFor); at += int64(time.Second) {
			c.after(time.Duration(at-c.now),
				func() { entries = append(entries, record.Entry{Observation: c.observe(n)}) })
		}
	}
	for _, p := range o.Partitions {
		event := func(at time.Duration, began bool) record.Entry {
			return record.Entry{Event: &record.Event{
				At: c.startAt + int64(at), Began: began, Name: record.Partition, Target: fmt.Sprint("region-", p.A)}}
		}
		entries = append(entries, event(p.From, true), event(p.Until, false))
	}
	if err = c.offer(ctx, func(time.Duration) {}); err != nil {
		return header, nil, err
	}
	c.runTo(c.endAt + int64(observeFor))
	return header, entries, nil
}

func (n *node) id() string { return fmt.Sprint("node-", n.place+1) }

func (n *node) regionName() string { return fmt.Sprint("region-", n.region+1) }

// observe returns what a node reports of itself. It is at most half a millisecond under way, either way.
func (c *cluster) observe(n *node) *record.Observation {
	const underWay = int64(time.Millisecond) / 2
	o := &record.Observation{
		Sent: max(c.startAt, c.now-underWay), Done: c.now + underWay, Node: n.id(), Boot: fmt.Sprint(n.boot),
		Bound: n.bound.Value(), Counts: make(map[string]uint64),
	}
	for _, p := range n.replica.Peers(c.clock(n)) {
		o.Staleness = max(o.Staleness, p.Age)
		if p.Member {
			o.Members++
		}
	}
	for i, key := range c.keys {
		d := n.table.Take(c.limit, key, 0, c.clock(n))
		o.Counts[strconv.Itoa(i)] = d.Limit - d.Remaining
	}
	return o
}
