package node

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/telemetry"
)

// newCollectors returns the node's metrics. Labels are names from the rules and the topology, never an identity.
func newCollectors(n *Node) []prometheus.Collector {
	return append(n.monitor.Latencies.Collectors(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &nodeCollector{n})
}

// nodeCollector reads the node's totals when it is scraped.
type nodeCollector struct{ n *Node }

// Describe implements prometheus.Collector. It describes nothing: the series depend on the rules.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(out chan<- prometheus.Metric) {
	n, w := c.n, telemetry.Writer(out)
	n.writeRules(w)
	n.monitor.Write(w, n.cluster)
	w.Gauge("pressure", "Reported pressure for elastic rules without a parent; 1 where none was reported for five "+
		"seconds.", n.Pressure())
	w.Bool("shadow", "1 while all rules are in shadow mode: nothing is denied.", n.shadow.Load())
	build := BuildVersion()
	w.GaugeVec("build_info", "1, labelled with the version of the build.", "version", "revision", "goversion")(
		1, build.Version, build.Revision, build.Go)
	w.WriteTable(n.table.Stats(), float64(n.cfg.Memory))
	streams, packets := n.cluster.Refused()
	w.WriteGossip(n.cluster.Stats(), streams, packets)
	n.writeListeners(w)
	n.writeAuth(w)
	n.writeEnvoy(w)
	n.writeRESP(w)
	if n.reconciler != nil {
		w.WriteStore(n.reconciler.Stats())
	}
}

// writeRules writes the rules in force and the decisions on them.
func (n *Node) writeRules(w telemetry.Writer) {
	p := n.policy.Load()
	w.Gauge("rules", "Rules in force.", float64(len(p.tallies)))
	w.Gauge("rules_without_series", "Rules beyond the first 1000 by name, counted as /other.", float64(p.folded))
	w.Bool("rules_loaded", "1 if the last load of rules was good; 0: it failed, and the last good ones are in force.",
		n.loads.good.Load())
	w.Gauge("rules_timestamp_seconds", "Unix time at which the rules in force were put in force.",
		float64(p.since.UnixMilli())/1000)
	w.Counters("rules_loads_total", "Loads of rules, by outcome (ok, failed).", "outcome",
		map[string]uint64{"ok": n.loads.ok.Load(), "failed": n.loads.failed.Load()})

	decisions := w.CounterVec("decisions_total", "Decisions by rule and outcome: allowed, denied, waived (over the "+
		"limit, but allowed by the rule's mode), banned (denied because of an earlier denial). A request counts once "+
		"in each layer that charged, denied or waived it. Rule /adhoc is all limits that requests bring along.",
		"rule", "outcome")
	near := w.CounterVec("near_limit_total", "Allowed decisions that left less than a fifth of the limit, by rule.",
		"rule")
	bounds := w.GaugeVec("over_admission_bound_ratio", "Bound on over-admission within the last window at the "+
		"measured rates, as a part of the rule's limit.", "rule")
	write := func(rule string, t *decisionCounts, limited, bans bool) {
		decisions(t.allowed.Load(), rule, "allowed")
		decisions(t.denied.Load(), rule, "denied")
		decisions(t.waived.Load(), rule, "waived")
		if limited {
			near(t.near.Load(), rule)
		}
		if bans {
			decisions(t.banned.Load(), rule, "banned")
		}
	}
	otherBound := 0.0
	for r, t := range p.tallies {
		bound := 0.0
		if r.Limit != nil {
			bound = n.monitor.Bound(r.Limit.Meter().Rule)
		}
		if t == p.other {
			otherBound = max(otherBound, bound)
			continue
		}
		write(r.PublicName, t, r.Limit != nil, r.Ban > 0)
		if r.Limit != nil {
			bounds(bound, r.PublicName)
		}
	}
	if p.folded > 0 {
		write(otherRules, p.other, true, true)
		bounds(otherBound, otherRules)
	}
	if n.resp != nil || n.envoy != nil {
		write(adHocRule, &n.adHocDecisions, true, false)
	}
}

// writeListeners writes the connections and panics of each listener.
func (n *Node) writeListeners(w telemetry.Writer) {
	open := w.GaugeVec("connections", "Connected clients, by listener (http, grpc, resp, health, admin).", "door")
	accepted := w.CounterVec("accepted_connections_total", "Accepted connections, by listener.", "door")
	evicted := w.CounterVec("evicted_connections_total", "Idle connections closed to make room, by listener.", "door")
	refused := w.CounterVec("refused_connections_total", "Refused connections, by listener and reason: full (the "+
		"listener has its maximum), source (the client's address has).", "door", "reason")
	panics := w.CounterVec("panics_total", "Requests that ended in a panic, by listener: a bug, see the log.", "door")
	for name, l := range n.listeners {
		s := l.Stats()
		open(float64(s.Open), name)
		accepted(s.Accepted, name)
		evicted(s.Evicted, name)
		refused(s.RefusedFull, name, "full")
		refused(s.RefusedSource, name, "source")
		panics(l.Panics(), name)
	}
}

// writeAuth writes the requests that /v1/auth and the checks were asked about.
func (n *Node) writeAuth(w telemetry.Writer) {
	a := n.requests.Stats()
	w.Counter("auth_requests_total", "Requests checked by /v1/auth.", a.Described)
	w.Counter("auth_requests_without_descriptor_total", "Of these, those without a descriptor: no rule limits them.",
		a.NoDescriptor)
	w.Counter("auth_ignored_headers_total", "Of these, those whose forwarded headers were ignored.", a.IgnoredHeaders)
	irregular := w.CounterVec("auth_irregular_layers_total", "Layers of these by what was wrong with a source: "+
		"missing, untrusted (missing because the peer is not among the trusted_proxies) or ambiguous; and by what "+
		"became of the layer: skipped, counted or denied.", "cause", "outcome")
	for cause, o := range map[string]actions.Outcomes{
		"missing": a.Missing, "untrusted": a.Untrusted, "ambiguous": a.Ambiguous,
	} {
		irregular(o.Skipped, cause, "skipped")
		irregular(o.Counted, cause, "counted")
		irregular(o.Denied, cause, "denied")
	}
	w.Counter("request_ids_forgotten_total", "Checks whose request_id was evicted within its minute: sent again, they "+
		"are charged.", n.forgottenIDs.Load())
}

// writeEnvoy writes the totals of Envoy's rate limit service: zeros without it, so that the series do not change.
func (n *Node) writeEnvoy(w telemetry.Writer) {
	if l := n.listeners["grpc"]; l != nil {
		late, dropped := l.Server.(EnvoyServer).Incomplete()
		w.Counters("rls_incomplete_requests_total", "gRPC requests dropped before they had arrived completely: late "+
			"(after 2 s), or dropped for newer ones.", "reason", map[string]uint64{"late": late, "dropped": dropped})
	}
	var e EnvoyStats
	if n.envoy != nil {
		e = n.envoy.Stats()
	}
	w.Counters("rls_requests_total", "Requests of Envoy's rate limit service by outcome: ok or over_limit (the "+
		"overall code), invalid, failed (without an answer).", "outcome", map[string]uint64{
		"ok": e.OK, "over_limit": e.OverLimit, "invalid": e.Invalid, "failed": e.Failed})
	w.Gauge("rls_overrides", "Limits in use that requests of Envoy's service brought.", float64(e.Overrides))
	w.Counter("rls_overrides_evicted_total", "Of these, those evicted while they may have counted.", e.Evicted)
	w.Gauge("rls_over_admission_bound_ratio", "Largest over_admission_bound_ratio of these.", n.adHocBound(envoyAPI))
}

// writeRESP writes the totals of the Redis protocol.
func (n *Node) writeRESP(w telemetry.Writer) {
	if n.resp == nil {
		return
	}
	r := n.resp.Stats()
	w.Gauge("resp_limits", "Classes of limits in use that clients of the Redis protocol brought.",
		float64(len(n.debts.Limits())))
	w.Gauge("resp_over_admission_bound_ratio", "Largest over_admission_bound_ratio of these.", n.adHocBound(redisAPI))
	w.Counter("resp_auth_failures_total", "Failed logins: a wrong password, or too many before.", r.WrongAuth)
	w.Counter("resp_malformed_requests_total", "Connections closed for a malformed command.", r.Malformed)
	w.Counter("resp_slow_connections_total", "Connections closed for a slow command or reply.", r.Slow)
	w.Counters("resp_commands_total", "Commands by outcome: allowed or denied (CL.THROTTLE), failed (the reply was "+
		"an error), other.", "outcome", map[string]uint64{
		"allowed": r.Allowed, "denied": r.Denied, "failed": r.Failed, "other": r.Other})
}
