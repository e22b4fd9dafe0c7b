package node

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/telemetry"
	"github.com/edgelimit/edgelimit/regions/strict"
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
	n.writeRuleStore(w)
	n.monitor.Write(w, n.cluster)
	w.Gauge("pressure", "Reported pressure for elastic rules without a parent; 1 where none was reported for five "+
		"seconds.", n.Pressure())
	w.Bool("shadow", "1 while all rules are in shadow mode: nothing is denied.", n.shadow.Load())
	build := BuildVersion()
	w.GaugeVec("build_info", "1, labelled with the version of the build.", "version", "revision", "goversion")(
		1, build.Version, build.Revision, build.Go)
	w.GaugeVec("node_info", "1, labelled with the node's name and region.", "node", "region")(
		1, n.cfg.NodeID, n.cfg.Region)
	w.WriteTable(n.table.Stats(), float64(n.cfg.Memory))
	streams, packets := n.cluster.Refused()
	self := n.cluster.Self()
	w.WriteGossip(n.cluster.Stats(), streams, packets, len(n.cluster.OtherKeys()),
		len(telemetry.Twins(&self, n.cluster.Peers())))
	n.writeListeners(w)
	n.writeAuth(w)
	n.writeDecisionLog(w)
	n.writeOTLP(w)
	n.writeBans(w)
	n.writeProxy(w)
	n.writeEnvoy(w)
	n.writeRESP(w)
	n.writeStrict(w)
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
		"limit, but allowed by the rule's mode), banned (denied because of an earlier denial), failed_open and "+
		"failed_closed (waived and denied as the rule's on_failure or on_partition wants). A request counts once in "+
		"each layer that charged, denied or waived it. Rule /adhoc is all limits that requests bring along.",
		"rule", "outcome")
	w.Counters("undecided_requests_total", "Requests that there were no rules for, where on_failure has a word on "+
		"them: none had been loaded, or none were in their domain; by outcome (admitted, denied).", "outcome",
		map[string]uint64{"admitted": n.undecided.admitted.Load(), "denied": n.undecided.denied.Load()})
	n.writeTop(w, p)
	near := w.CounterVec("near_limit_total", "Allowed decisions that left less than a fifth of the limit, by rule.",
		"rule")
	bounds := w.GaugeVec("over_admission_bound_ratio", "Bound on over-admission within the last window at the "+
		"measured rates, as a part of the rule's limit.", "rule")
	over := w.GaugeVec("over_limit_ratio", "By how much the counts of those whom this node denies most exceeded the "+
		"limit within the last window, as a part of it: an estimate, beside the bound on it. Rules whose counts do "+
		"not tell have none.",
		"rule")
	write := func(rule string, t *decisionCounts, limited, bans, heeds bool) {
		decisions(t.allowed.Load(), rule, "allowed")
		decisions(t.denied.Load(), rule, "denied")
		decisions(t.waived.Load(), rule, "waived")
		if limited {
			near(t.near.Load(), rule)
		}
		if bans {
			decisions(t.banned.Load(), rule, "banned")
		}
		if heeds {
			decisions(t.failedOpen.Load(), rule, "failed_open")
			decisions(t.failedClosed.Load(), rule, "failed_closed")
		}
	}
	otherBound := 0.0
	for r, t := range p.tallies {
		bound, shown := n.excessOf(r)
		if t == p.other {
			otherBound = max(otherBound, bound)
			continue
		}
		write(r.Name, t, r.Limit != nil, r.Ban > 0 || t.banned.Load() > 0,
			r.Heeds() || t.failedOpen.Load()+t.failedClosed.Load() > 0)
		if r.Limit != nil {
			bounds(bound, r.Name)
		}
		if shown != nil {
			over(*shown, r.Name)
		}
	}
	w.Counter("unpriced_responses_total", "Responses that cost 1 for want of the header with their cost (cost_from).",
		n.monitor.Unpriced.Total())
	if p.folded > 0 {
		write(otherRules, p.other, true, true, true)
		bounds(otherBound, otherRules)
	}
	if n.resp != nil || n.envoy != nil {
		write(adHocRule, &n.adHocDecisions, true, false, false)
	}
}

// writeStrict writes the stores of strict rules, by their home regions.
func (n *Node) writeStrict(w telemetry.Writer) {
	const by = "home_region"
	calls := w.CounterVec("strict_calls_total", "Calls of the stores of strict rules, by home region.", by)
	failed := w.CounterVec("strict_failed_calls_total", "Of these, those without an answer in time.", by)
	retried := w.CounterVec("strict_retries_total", "Calls that were sent again; they charge once.", by)
	local := w.CounterVec("strict_local_decisions_total", "Decisions by permits that the node had leased, and by "+
		"denials whose end it knew.", by)
	refunded := w.CounterVec("strict_refunds_total", "Charges that were given back, as another layer denied the "+
		"request, the client had gone, or the answer came too late; and parts of leases.", by)
	abandoned := w.CounterVec("strict_abandoned_total", "Charges that could neither be confirmed nor given back: they "+
		"count until their window has passed.", by)
	fallbacks := w.CounterVec("strict_fallbacks_total", "Requests that on_failure decided on, as the store did not "+
		"answer.", by)
	passed := w.CounterVec("strict_passed_without_store_total", "Of these, requests that passed, as a rule's own "+
		"on_failure is open or local.", by)
	unreported := w.CounterVec("strict_unreported_total", "Charges after the fact that were lost, as the store did "+
		"not answer.", by)
	open := w.GaugeVec("strict_breaker_open", "1 while the store is left alone after failures, but for one probe at a "+
		"time.", by)
	evicts := w.GaugeVec("strict_evicts", "1 if the store's maxmemory-policy lets it evict counts.", by)
	leased := w.GaugeVec("strict_leased_keys", "Keys that the node has permits for.", by)
	for region, h := range n.policy.Load().homes {
		var s strict.Stats
		if h.store != nil {
			s = h.store.Stats()
		}
		calls(s.Calls, region)
		failed(s.Failed, region)
		retried(s.Retried, region)
		local(s.Local, region)
		refunded(s.Refunded, region)
		abandoned(s.Abandoned, region)
		fallbacks(h.fallbacks.Load(), region)
		passed(h.passed.Load(), region)
		unreported(h.unreported.Load(), region)
		leased(float64(s.Leased), region)
		open(telemetry.Number(s.Open), region)
		evicts(telemetry.Number(s.Evicts), region)
	}
}

// writeListeners writes the connections and panics of each listener.
func (n *Node) writeListeners(w telemetry.Writer) {
	open := w.GaugeVec("connections", "Connected clients, by listener (http, grpc, resp, proxy, health, admin, "+
		"prometheus).", "door")
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
	n.writeBudgets(w)
	n.writeSecrets(w)
	n.writeHandshakes(w)
}

// writeBudgets writes what clients share, and whom it was refused.
func (n *Node) writeBudgets(w telemetry.Writer) {
	used := w.GaugeVec("budget_used", "What all clients hold of a budget, by listener (empty: the node) and budget: "+
		"node/README.md lists them.", "door", "budget")
	limit := w.GaugeVec("budget_limit", "What they may hold.", "door", "budget")
	largest := w.GaugeVec("budget_largest_share", "What the source holds that holds the most.", "door", "budget")
	refused := w.CounterVec("budget_refused_total", "Refusals for want of room in a budget, by reason: full (all "+
		"sources hold the total), source (the client's has its share).", "door", "budget", "reason")
	for _, b := range n.budgets.All() {
		s := b.Stats()
		used(float64(s.Used), s.Door, s.Name)
		limit(float64(s.Total), s.Door, s.Name)
		largest(float64(s.Largest), s.Door, s.Name)
		for why, count := range s.Refused {
			refused(count, s.Door, s.Name, string(why))
		}
	}
}

// writeSecrets writes whether secrets are those in their files, and who was refused for want of one.
func (n *Node) writeSecrets(w telemetry.Writer) {
	current := w.GaugeVec("secret_file_current", "1 if the secrets in the file of a setting are in use; 0: it cannot "+
		"be used, and those that it had last are.", "setting")
	for _, f := range n.secrets.files {
		current(telemetry.Number(!f.bad.Load()), f.setting)
	}
	if n.access != nil {
		w.Counters("admin_refused_requests_total", "Requests of operators refused, by reason: missing (neither a "+
			"token nor a certificate), wrong (an unknown token), role (it takes the role operate).", "reason",
			n.access.Refused())
	}
}

// writeHandshakes writes what listeners do before the first request of a connection.
func (n *Node) writeHandshakes(w telemetry.Writer) {
	failed := w.CounterVec("failed_handshakes_total", "Connections that ended in their TLS handshake or PROXY header, "+
		"by listener and reason.", "door", "reason")
	expires := w.GaugeVec("tls_certificate_expiry_timestamp_seconds", "Unix time at which the listener's certificate, "+
		"or one of its issuers' in the same file, expires.", "door")
	current := w.GaugeVec("tls_files_current", "1 if the listener's TLS files are in use as they are; 0: they cannot "+
		"be used, and the last good ones are.", "door")
	for name, l := range n.listeners {
		for why, count := range l.HandshakeFailures() {
			failed(count, name, why)
		}
		if c := l.Certificate(); c != nil {
			expires(float64(c.Expires.Unix()), name)
			good := 0.0
			if c.Current {
				good = 1
			}
			current(good, name)
		}
	}
}

// writeAuth writes the requests that /v1/auth and the checks were asked about.
func (n *Node) writeAuth(w telemetry.Writer) {
	a := n.requests.Stats()
	w.Counter("auth_requests_total", "Requests checked by /v1/auth.", a.Described)
	w.Counter("auth_requests_without_descriptor_total", "Of these, those without a descriptor: no rule limits them.",
		a.NoDescriptor)
	w.Counter("unread_client_headers_total", "Requests to /v1/auth, the proxy and the middleware whose headers name a "+
		"client and are not read: the peer is not in trusted_proxies, or client_header is another one. All visitors "+
		"behind such a proxy count as one client.", n.senders.Total())
	writeIrregular(w.CounterVec("auth_irregular_layers_total", "Layers of requests to /v1/auth"+irregularHelp, "cause",
		"outcome"), a)
	w.Counter("request_ids_forgotten_total", "Checks whose request_id was evicted within its minute: sent again, they "+
		"are charged.", n.forgottenIDs.Load())
}

const irregularHelp = " by what was wrong with a source: missing, untrusted (missing because the peer is not among " +
	"the trusted_proxies) or ambiguous; and by what became of the layer: skipped, counted or denied."

// writeIrregular writes the layers of requests that lacked a source, or had it in an ambiguous form.
func writeIrregular(irregular func(v uint64, values ...string), all ...actions.Stats) {
	var missing, untrusted, ambiguous actions.Outcomes
	for _, a := range all {
		missing, untrusted, ambiguous = missing.Add(a.Missing), untrusted.Add(a.Untrusted), ambiguous.Add(a.Ambiguous)
	}
	for cause, o := range map[string]actions.Outcomes{
		"missing": missing, "untrusted": untrusted, "ambiguous": ambiguous,
	} {
		irregular(o.Skipped, cause, "skipped")
		irregular(o.Counted, cause, "counted")
		irregular(o.Denied, cause, "denied")
	}
}

// topRanks is how many of the identities that are denied most have series: few, as each is of the rule of the moment.
const topRanks = 10

// writeTop writes how often those were denied whom the node denied most. Whom, edgelimit top says.
func (n *Node) writeTop(w telemetry.Writer, p *policy) {
	top := w.GaugeVec("top_denied", "Denials, at least, within the last five to ten minutes of the ten identities "+
		"that this node denied most, by rank (1 to 10) and rule. edgelimit top says who they are.", "rank", "rule")
	for i, d := range n.topDenied(p, maps.Keys(p.tallies), topRanks) {
		top(float64(d.Denials-d.Error), strconv.Itoa(i+1), d.Rule) // certain
	}
}

// writeBans writes the bans in force, and how their exports do.
func (n *Node) writeBans(w telemetry.Writer) {
	p, folded, now := n.policy.Load(), 0, time.Now()
	inForce := w.GaugeVec("bans", "Bans in force that this node knows, by rule.", "rule")
	for rule, count := range n.bans.Counts() {
		r := p.set.Rule(rule)
		if r == nil || p.tallies[r] == p.other {
			folded += count
			continue
		}
		inForce(float64(count), r.Name)
	}
	inForce(float64(folded), otherRules)
	w.Counter("bans_unlisted_total", "Bans by rules beyond the 1048576 that are listed and exported; they hold all "+
		"the same.", n.bans.Unlisted())
	w.Counter("bans_refused_total", "Bans by hand that came when 1048576 others held: they do not hold on this node.",
		n.bans.Refused())
	age := w.GaugeVec("ban_export_age_seconds", "Time since the export was last known to be up to date; since the "+
		"start of the process if it never was.", "export")
	entries := w.GaugeVec("ban_export_entries", "Addresses and prefixes that the export has.", "export")
	failures := w.CounterVec("ban_export_failures_total", "Failed attempts to bring the export up to date.", "export")
	restored := w.CounterVec("ban_export_restored_total", "Times others had changed, emptied or removed what was "+
		"exported, and it was exported anew.", "export")
	spared := w.GaugeVec("ban_export_spared", "Banned addresses and prefixes that the export leaves out, as they hold "+
		"addresses that are never blocked.", "export")
	for _, x := range n.exporters {
		s := x.Stats()
		restored(s.Restored, s.Name)
		spared(float64(s.Spared), s.Name)
		age(now.Sub(s.Success).Seconds(), s.Name)
		entries(float64(s.Entries), s.Name)
		failures(s.Failures, s.Name)
	}
}

// writeProxy writes the requests and upstreams of the reverse proxy.
func (n *Node) writeProxy(w telemetry.Writer) {
	if n.proxy == nil {
		return
	}
	s := n.proxy.Stats()
	requests := w.CounterVec("proxy_requests_total", "Requests to the reverse proxy by status: 2xx, 4xx and so on. "+
		"Denials are 4xx, as are those whose client has gone.", "status")
	for class, count := range s.Classes[1:] {
		requests(count, fmt.Sprintf("%dxx", class+1))
	}
	w.Counter("proxy_retries_total", "Requests sent to another upstream after one had failed.", s.Retries)
	w.Gauge("proxy_websockets", "Open WebSockets through the reverse proxy.", float64(s.WebSockets))
	w.Counter("proxy_access_log_errors_total", "Failed writes to the access log, whose lines are lost.", s.LogErrors)
	up := w.GaugeVec("proxy_upstream_up", "1 while the upstream gets requests; 0: its health checks fail, or it "+
		"refused a connection a moment ago.", "upstream")
	sent := w.CounterVec("proxy_upstream_requests_total", "Requests sent to the upstream.", "upstream")
	failed := w.CounterVec("proxy_upstream_errors_total", "Of these, those without a response, by reason: connect (no "+
		"connection), timeout (none in time) or broken.", "upstream", "reason")
	for _, u := range s.Upstreams {
		value := 0.0
		if u.Up {
			value = 1
		}
		up(value, u.Name)
		sent(u.Requests, u.Name)
		failed(u.Connects, u.Name, "connect")
		failed(u.Timeouts, u.Name, "timeout")
		failed(u.Broken, u.Name, "broken")
	}
	without := uint64(0)
	for _, a := range s.Described {
		without += a.NoDescriptor
	}
	w.Counter("proxy_requests_without_descriptor_total", "Requests to the reverse proxy without a descriptor: no rule "+
		"limits them.", without)
	writeIrregular(w.CounterVec("proxy_irregular_layers_total", "Layers of requests to the reverse proxy"+irregularHelp,
		"cause", "outcome"), s.Described...)
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
	w.Gauge("rls_over_admission_bound_ratio", "Largest over_admission_bound_ratio of rls_overrides.",
		n.adHocBound(envoyAPI))
}

// writeRESP writes the totals of the Redis protocol.
func (n *Node) writeRESP(w telemetry.Writer) {
	if n.resp == nil {
		return
	}
	r := n.resp.Stats()
	w.Gauge("resp_limits", "Classes of limits in use that clients of the Redis protocol brought.",
		float64(len(n.debts.Limits())))
	w.Gauge("resp_over_admission_bound_ratio", "Largest over_admission_bound_ratio of resp_limits.",
		n.adHocBound(redisAPI))
	w.Counter("resp_auth_failures_total", "Failed logins: a wrong password, or too many before.", r.WrongAuth)
	w.Counter("resp_malformed_requests_total", "Connections closed for a malformed command.", r.Malformed)
	w.Counter("resp_slow_connections_total", "Connections closed for a slow command or reply.", r.Slow)
	w.Counters("resp_commands_total", "Commands by outcome: allowed or denied (CL.THROTTLE), failed (the reply was "+
		"an error), other.", "outcome", map[string]uint64{
		"allowed": r.Allowed, "denied": r.Denied, "failed": r.Failed, "other": r.Other})
}
