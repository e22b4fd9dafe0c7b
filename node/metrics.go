package node

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/edgelimit/edgelimit/gossip"
)

// newCollectors returns the node's metrics. Labels are names from the rules and the topology, never an identity.
func newCollectors(n *Node) []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&nodeCollector{n}, n.latencies.staleness, n.latencies.calls,
	}
}

// latencies are the histograms of what happens off the request path.
type latencies struct {
	staleness *prometheus.HistogramVec
	calls     *prometheus.HistogramVec
}

func newLatencies() *latencies {
	return &latencies{
		staleness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "edgelimit_peer_staleness_seconds",
			Help:    "Age of what this node knows of each other one that has requests, its largest in every gossip interval, by the other's region.",
			Buckets: []float64{.05, .1, .15, .2, .3, .5, 1, 2, 5, 10, 30, 60},
		}, []string{"region"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "edgelimit_store_call_seconds",
			Help:    "How long calls of the regional store took, by outcome (ok, failed).",
			Buckets: []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5},
		}, []string{"outcome"}),
	}
}

func (l *latencies) store(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	l.calls.WithLabelValues(outcome).Observe(took.Seconds())
}

// peers notes the ages of an interval. Those of idle peers, who speak once a second, would hide how fast counts travel.
func (l *latencies) peers(members []gossip.MemberStatus) {
	for i := range members {
		if m := &members[i]; !m.Idle {
			l.staleness.WithLabelValues(label(m.Region)).Observe(m.Age.Seconds())
		}
	}
}

// label makes a label of a peer's word: one that is not UTF-8 would be a panic.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

var (
	decisionsDesc = desc("decisions_total", "Decisions by rule and outcome: allowed, denied, waived, which is over the limit and let pass by the rule's mode, or, of a rule with a ban, banned: denied because of an earlier denial. A request counts once in each layer that charged, denied or waived it.", "rule", "outcome")
	nearDesc      = desc("near_limit_total", "Of the allowed decisions by rule, those that left less than a fifth of the limit.", "rule")
	boundDesc     = desc("over_admission_bound_ratio", "Bound on over-admission within the last window, as a part of the rule's limit, for the measured rates.", "rule")
	membersDesc   = desc("members", "Other nodes in the membership, by region.", "region")
	staleDesc     = desc("staleness_seconds", "Largest age of what this node knows of another one.")
	degradedDesc  = desc("degraded", "1 while some node is silent or out of the membership without having left, or this node's clock is off.")
	skewDesc      = desc("clock_skew_seconds", "By how much this node's clock is ahead of the median of its peers' and the regional store's.")
	clocksDesc    = desc("clock_skew_clocks", "How many other clocks the skew is of; 0: the skew is unknown.")
	rulesDesc     = desc("rules", "Rules in force.")
	loadedDesc    = desc("rules_loaded", "1 when the last load of rules was good, 0 when it failed: the last good ones are in force then.")
	sinceDesc     = desc("rules_timestamp_seconds", "When the rules in force were put in force, in Unix time.")
	pressureDesc  = desc("pressure", "Reported pressure, that elastic rules without a parent look at; 1 where nobody has reported any for five seconds.")
	shadowDesc    = desc("shadow", "1 while all rules are in shadow mode: nothing is denied.")
	keysDesc      = desc("keys", "Counters held.")
	memoryDesc    = desc("memory_bytes", "Memory that the counters take now.")
	budgetDesc    = desc("memory_limit_bytes", "Memory that the counters may take.")
	storeWaitDesc = desc("store_pending_slots", "Slots that wait to be told to the regional store.")
	storeOpenDesc = desc("store_breaker_state", "Whether the regional store is called: 0 closed (it answers), 1 open (it failed), 2 half-open (it is tried).")

	loadsDesc     = desc("rules_loads_total", "Loads of rules, by outcome (ok, failed).", "outcome")
	expiredDesc   = desc("expired_keys_total", "Counters that went because their window had passed.")
	evictedDesc   = desc("evicted_keys_total", "Counters that went to make room, by standing: whether the last request was denied, or other.", "standing")
	forgottenDesc = desc("forgotten_cost_total", "Cost that evicted counters still counted.")
	refusedDesc   = desc("refused_slots_total", "Slots of peers that were refused: from the future, invalid, or beyond belief.")
	liesDesc      = desc("implausible_slots_total", "Of the refused slots of peers, those that count more than a node can have admitted.")

	framesSentDesc     = desc("gossip_frames_sent_total", "Frames sent to peers.")
	framesReceivedDesc = desc("gossip_frames_received_total", "Frames received from peers.")
	bytesSentDesc      = desc("gossip_bytes_sent_total", "Bytes of frames sent.")
	bytesReceivedDesc  = desc("gossip_bytes_received_total", "Bytes of frames received.")
	slotsNovelDesc     = desc("gossip_novel_slots_total", "Received slots that were news.")
	resentDesc         = desc("gossip_resent_frames_total", "Frames sent again to a peer that lacked them.")
	snapshotsDesc      = desc("gossip_snapshots_sent_total", "Snapshots sent to peers that were new or too far behind.")
	snapshotsInDesc    = desc("gossip_snapshots_received_total", "Snapshots received.")
	earlyDesc          = desc("gossip_early_frames_total", "Frames that were asked for again, because they told of a time to come: the sender's clock is ahead.")
	malformedDesc      = desc("gossip_malformed_frames_total", "Frames that could not be read.")

	connectionsDesc = desc("connections", "Clients that are connected, by door (http, grpc, resp, health).", "door")
	acceptedDesc    = desc("accepted_connections_total", "Connections that were let in, by door.", "door")
	turnedAwayDesc  = desc("refused_connections_total", "Connections beyond how many there may be, by door.", "door")

	respLimitsDesc    = desc("resp_limits", "Limits that clients of the Redis protocol have made and use.")
	respBoundDesc     = desc("resp_over_admission_bound_ratio", "The largest over_admission_bound_ratio of those limits.")
	respMalformedDesc = desc("resp_malformed_requests_total", "Connections of the Redis protocol that ended because what came was no command.")
	respSlowDesc      = desc("resp_slow_connections_total", "Connections of the Redis protocol that ended because a command or its reply took too long.")
	respCommandsDesc  = desc("resp_commands_total", "Commands by outcome: allowed or denied (CL.THROTTLE), failed (an error was the reply), other.", "outcome")

	rlsRequestsDesc  = desc("rls_requests_total", "Requests of Envoy's rate limit service by outcome: ok or over_limit (the overall code), invalid, failed (there was no answer).", "outcome")
	rlsOverridesDesc = desc("rls_overrides", "Limits that requests of Envoy's rate limit service have brought and use.")
	rlsBoundDesc     = desc("rls_over_admission_bound_ratio", "The largest over_admission_bound_ratio of those limits.")

	storeFlushedDesc = desc("store_flushed_slots_total", "Slots that the regional store acknowledged.")
	storeFailedDesc  = desc("store_failed_calls_total", "Calls of the regional store that failed.")
	storeDroppedDesc = desc("store_dropped_slots_total", "Slots that found no room to wait; a push of all own slots makes that good.")
	storeLostDesc    = desc("store_lost_total", "Times that the regional store was found to have lost data.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("edgelimit_"+name, help, labels, nil)
}

// nodeCollector reads the node's totals when it is scraped.
type nodeCollector struct{ n *Node }

// Describe implements prometheus.Collector. It tells nothing: which series there are depends on the rules.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	total := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	n := c.n
	p := n.policy.Load()
	gauge(rulesDesc, float64(len(p.tallies)))
	gauge(loadedDesc, map[bool]float64{true: 1}[n.loads.good.Load()])
	gauge(sinceDesc, float64(p.since.UnixMilli())/1000)
	total(loadsDesc, n.loads.ok.Load(), "ok")
	total(loadsDesc, n.loads.failed.Load(), "failed")
	for r, t := range p.tallies {
		total(decisionsDesc, t.allowed.Load(), r.FullName, "allowed")
		total(decisionsDesc, t.denied.Load(), r.FullName, "denied")
		total(decisionsDesc, t.waived.Load(), r.FullName, "waived")
		if r.Limit != nil {
			total(nearDesc, t.near.Load(), r.FullName)
		}
		if r.Ban > 0 {
			total(decisionsDesc, t.banned.Load(), r.FullName, "banned")
		}
		if r.Limit != nil {
			gauge(boundDesc, n.audit.bound(r.Limit.Meter().Rule), r.FullName)
		}
	}
	byRegion := make(map[string]int)
	for _, m := range n.cluster.Members() {
		byRegion[label(m.Region)]++
	}
	for region, count := range byRegion {
		gauge(membersDesc, float64(count), region)
	}
	gauge(staleDesc, n.Staleness().Seconds())
	gauge(degradedDesc, map[bool]float64{true: 1}[n.degraded.all.Load()])
	gauge(pressureDesc, n.Pressure())
	gauge(shadowDesc, map[bool]float64{true: 1}[n.shadow.Load()])

	skew := n.Skew()
	gauge(skewDesc, skew.Ahead.Seconds())
	gauge(clocksDesc, float64(skew.Clocks))

	t := n.table.Stats()
	gauge(keysDesc, float64(t.Keys))
	gauge(memoryDesc, float64(t.Bytes))
	gauge(budgetDesc, float64(n.cfg.Memory))
	total(expiredDesc, t.Expired)
	total(evictedDesc, t.EvictedDenied, "denied")
	total(evictedDesc, t.Evicted-t.EvictedDenied, "other")
	total(forgottenDesc, t.Forgotten)
	total(refusedDesc, t.Refused)
	total(liesDesc, t.Implausible)

	g := n.cluster.Stats()
	total(framesSentDesc, g.FramesSent)
	total(framesReceivedDesc, g.FramesReceived)
	total(bytesSentDesc, g.BytesSent)
	total(bytesReceivedDesc, g.BytesReceived)
	total(slotsNovelDesc, g.SlotsNovel)
	total(resentDesc, g.Resent)
	total(snapshotsDesc, g.Snapshots)
	total(snapshotsInDesc, g.SnapshotsReceived)
	total(malformedDesc, g.Malformed)
	total(earlyDesc, g.Early)

	for _, d := range n.doors() {
		g := d.guests()
		gauge(connectionsDesc, float64(g.open), d.name)
		total(acceptedDesc, g.accepted, d.name)
		total(turnedAwayDesc, g.refused, d.name)
	}
	e := n.envoy.Stats()
	total(rlsRequestsDesc, e.OK, "ok")
	total(rlsRequestsDesc, e.OverLimit, "over_limit")
	total(rlsRequestsDesc, e.Invalid, "invalid")
	total(rlsRequestsDesc, e.Failed, "failed")
	gauge(rlsOverridesDesc, float64(e.Overrides))
	gauge(rlsBoundDesc, n.boundOf(&n.made[ofEnvoy]))

	if n.redisProtocol != nil {
		r := n.redisProtocol.Stats()
		gauge(respLimitsDesc, float64(r.Limits))
		gauge(respBoundDesc, n.boundOf(&n.made[ofRedisClients]))
		total(respMalformedDesc, r.Malformed)
		total(respSlowDesc, r.Slow)
		total(respCommandsDesc, r.Allowed, "allowed")
		total(respCommandsDesc, r.Denied, "denied")
		total(respCommandsDesc, r.Failed, "failed")
		total(respCommandsDesc, r.Other, "other")
	}

	if n.reconciler == nil {
		return
	}
	s := n.reconciler.Stats()
	gauge(storeWaitDesc, float64(s.Pending))
	gauge(storeOpenDesc, float64(s.Breaker))
	total(storeFlushedDesc, s.Flushed)
	total(storeFailedDesc, s.Failed)
	total(storeDroppedDesc, s.Dropped)
	total(storeLostDesc, s.Lost)
}
