package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/regions"
)

// Writer writes metrics whose names begin with edgelimit_ into a scrape.
type Writer chan<- prometheus.Metric

// vec returns a function that writes the series of a name, by their labels' values, which need not be UTF-8.
func (w Writer) vec(kind prometheus.ValueType, name, help string, labels []string) func(v float64, values ...string) {
	desc := prometheus.NewDesc("edgelimit_"+name, help, labels, nil)
	return func(v float64, values ...string) {
		for i := range values {
			values[i] = label(values[i])
		}
		w <- prometheus.MustNewConstMetric(desc, kind, v, values...)
	}
}

// CounterVec returns a function that writes the counters of a name, by their labels' values.
func (w Writer) CounterVec(name, help string, labels ...string) func(v uint64, values ...string) {
	write := w.vec(prometheus.CounterValue, name, help, labels)
	return func(v uint64, values ...string) { write(float64(v), values...) }
}

// GaugeVec returns a function that writes the gauges of a name, by their labels' values.
func (w Writer) GaugeVec(name, help string, labels ...string) func(v float64, values ...string) {
	return w.vec(prometheus.GaugeValue, name, help, labels)
}

// Counters writes the counters of a name, by the values of their only label.
func (w Writer) Counters(name, help, label string, counters map[string]uint64) {
	write := w.CounterVec(name, help, label)
	for value, v := range counters {
		write(v, value)
	}
}

// Counter writes a counter without labels.
func (w Writer) Counter(name, help string, v uint64) { w.CounterVec(name, help)(v) }

// Gauge writes a gauge without labels.
func (w Writer) Gauge(name, help string, v float64) { w.GaugeVec(name, help)(v) }

// Bool writes a gauge of 1 or 0.
func (w Writer) Bool(name, help string, on bool) { w.Gauge(name, help, Number(on)) }

// Number is 1 or 0.
func Number(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// Write writes what the monitor knows of requests without a rule, and of the cluster.
func (m *Monitor) Write(w Writer, c *gossip.Cluster) {
	unmatched := make(map[string]uint64)
	for _, miss := range misses {
		unmatched[miss.String()] = m.Unmatched.reasons[miss].count.Load()
	}
	w.Counters("unmatched_requests_total", "Requests that matched no rule and were allowed, by reason: "+
		"unknown_domain, unknown_key (no rule has these keys), no_rule (none has these values).", "reason", unmatched)
	peers := c.Members()
	byRegion, labels := make(map[string]int), regionLabels(peers)
	for i := range peers {
		byRegion[labels[peers[i].Region]]++
	}
	members := w.GaugeVec("members", "Other nodes in the membership, by region.", "region")
	for region, count := range byRegion {
		members(float64(count), region)
	}
	reach := m.reach.latest.Load()
	reachable := w.GaugeVec("region_reachable", "1 while any other node of the region is reachable, else 0; "+
		"for up to 64 regions.", "region")
	for region, ok := range reach.byLabel() {
		reachable(Number(ok), region)
	}
	blocked := w.GaugeVec("blocked_peers", "Other nodes by way (udp_to and udp_from them, udp_both, tcp_to) that "+
		"is blocked while the other protocol passes, by region.", "region", "way")
	for region := range reach.byLabel() {
		for _, way := range allWays {
			nodes := 0
			for _, b := range reach.blocked {
				if b.Way == way && label(b.Region) == region {
					nodes += len(b.Nodes)
				}
			}
			blocked(float64(nodes), region, string(way))
		}
	}
	w.Gauge("ended_peers", "Of unreachable_peers, those whose hosts refuse connections: their processes have ended.",
		float64(len(reach.ended)))
	w.Gauge("unreachable_peers", "Other nodes silent for 3 s, or gone without having left.", float64(reach.peers))
	w.Gauge("peers_with_other_rules", "Other nodes whose rules differ in effect from those in force here.",
		float64(m.otherRules.count.Load()))
	w.Gauge("peers_with_other_identity", "Other nodes with another identity key: their counts are apart from this "+
		"node's.", float64(m.otherIdentity.count.Load()))
	age, _ := c.Staleness()
	w.Gauge("staleness_seconds", "Time since the last counts of the peer furthest behind.", age.Seconds())
	w.Bool("degraded", "1 while a node cannot be reached or has another identity key, seeds do not answer, or this "+
		"node's clock is off.", m.degraded.cluster.Load())
	outage := w.GaugeVec("outage", "0 while the node reaches all nodes that share limits of a scope, 1 while it does "+
		"not, 2 while it is cut off: it reaches no more than half of them, or knows no other node and does not reach "+
		"the store. Requests follow on_failure then.", "scope")
	for _, s := range []counters.Scope{counters.Global, counters.Region} {
		outage(float64(m.Outage(s)), s.String())
	}
	skew := m.Skew()
	w.Gauge("clock_skew_seconds", "Lead of this clock over the median of peers and store.", skew.Ahead.Seconds())
	w.Gauge("clock_skew_clocks", "Clocks that clock_skew_seconds compares with; 0: unknown.", float64(skew.Clocks))
}

// WriteTable writes the statistics of the table of counters.
func (w Writer) WriteTable(t counters.Stats, memory float64) {
	w.Gauge("keys", "Counters held.", float64(t.Keys))
	w.Gauge("memory_bytes", "Memory that the counters use.", float64(t.Bytes))
	w.Gauge("memory_limit_bytes", "Memory that the counters may use.", memory)
	w.Counter("expired_keys_total", "Counters removed because their window had passed.", t.Expired)
	w.Counters("evicted_keys_total", "Counters evicted to make room, by standing: denied (the last request was "+
		"denied), peer (only peers counted), or other.", "standing", map[string]uint64{"denied": t.EvictedDenied,
		"peer": t.EvictedRemote, "other": t.Evicted - t.EvictedDenied - t.EvictedRemote})
	w.Counter("evicted_full_keys_total", "Evicted counters with half of their limit or more: as much may be admitted "+
		"again.", t.EvictedFull)
	w.Counter("forgotten_cost_total", "Cost that evicted counters still counted.", t.Forgotten)
	w.Counter("refused_slots_total", "Peers' slots refused: from the future, invalid, implausible, or of too many "+
		"origins.", t.Refused)
	w.Counter("implausible_slots_total", "Refused slots that count more than a node can have admitted.", t.Implausible)
	w.Counter("unknown_origin_slots_total", "Refused slots of too many origins that are no members.", t.OriginsRefused)
	w.Counter("retired_origins_total", "Origins that are no members any more, dropped with their counts to make room "+
		"for members.", t.OriginsRetired)
	w.Counter("denied_by_one_peer_total", "Keys, once per sub-window, denied by a single peer's counts.", t.DeniedByOne)
}

// WriteGossip writes the statistics of replication.
func (w Writer) WriteGossip(g gossip.Stats, refusedStreams, refusedPackets uint64, otherKeys, twins int) {
	w.Counter("gossip_frames_sent_total", "Frames sent to peers.", g.FramesSent)
	w.Counter("gossip_frames_received_total", "Frames received from peers.", g.FramesReceived)
	w.Counter("gossip_bytes_sent_total", "Bytes of frames sent.", g.BytesSent)
	w.Counter("gossip_bytes_received_total", "Bytes of frames received.", g.BytesReceived)
	w.Counter("gossip_novel_slots_total", "Received slots that were new.", g.SlotsNovel)
	w.Counter("gossip_resent_frames_total", "Frames resent to a peer that lacked them.", g.Resent)
	w.Counter("gossip_unsent_frames_total", "Frames dropped because too many waited to be sent.", g.Unsent)
	w.Counter("gossip_snapshots_sent_total", "Snapshots sent to peers that were new or too far behind.", g.Snapshots)
	w.Counter("gossip_snapshots_received_total", "Snapshots received.", g.SnapshotsReceived)
	w.Counter("gossip_early_frames_total", "Frames from the future, or of nodes not known yet, requested again.",
		g.Early)
	w.Counter("gossip_refused_snapshots_total", "Snapshots refused: their sender sends too many.", g.SnapshotsRefused)
	w.Counter("gossip_malformed_frames_total", "Frames that could not be decoded.", g.Malformed)
	w.Counter("gossip_refused_streams_total", "Streams to the gossip ports dropped unread: no peer's, not "+
		"encrypted with the key, compressed, too large, or while 64 are open.", refusedStreams)
	w.Counter("gossip_refused_packets_total", "Packets to the gossip ports dropped unread: no peer's, not "+
		"encrypted with the key, compressed, or too large.", refusedPackets)
	w.Gauge("gossip_other_key_hosts", "Hosts, up to 16 a network, that go on sending gossip encrypted with another "+
		"key.", float64(otherKeys))
	w.Gauge("gossip_twin_nodes", "Members that share region and node id with this node or another one.",
		float64(twins))
}

// WriteStore writes the statistics of the regional store.
func (w Writer) WriteStore(s regions.Stats) {
	w.Gauge("store_pending_slots", "Slots waiting to be written to the regional store.", float64(s.Pending))
	w.Gauge("store_breaker_state", "Circuit breaker of the regional store: 0 closed (it answers), 1 open (it failed), "+
		"2 half-open (it is tried).", float64(s.Breaker))
	w.Counter("store_flushed_slots_total", "Slots that the regional store acknowledged.", s.Flushed)
	w.Counter("store_failed_calls_total", "Calls of the regional store that failed.", s.Failed)
	w.Counter("store_dropped_slots_total", "Slots that found the queue full; writing all repairs that.", s.Dropped)
	w.Counter("store_other_counts_total", "Of a node that gossips with none: counts of other nodes that rose in its "+
		"Redis.", s.Others)
	w.Counter("store_lost_total", "Times that the regional store was found to have lost data.", s.Lost)
}
