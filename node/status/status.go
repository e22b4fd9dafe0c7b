package status

import (
	"encoding/json"
	"time"
)

// The health of a node, as Status.Health says it.
const (
	Healthy  = "ok"
	Degraded = "degraded" // Status.Summary says why
	Unready  = "unready"  // it starts or stops
)

// Status is what one node knows of itself and of the others.
type Status struct {
	Node    string    `json:"node"`
	Region  string    `json:"region"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"` // by the node's clock
	Uptime  int64     `json:"uptime_ms"`
	Health  string    `json:"health"` // Healthy, Degraded or Unready
	// Summary is what an operator should know first, the worst first, in words.
	Summary []Finding `json:"summary"`
	// Degraded is why decisions are degraded; nothing while they are not.
	Degraded []string `json:"degraded"`
	// Warnings are about configuration and rules.
	Warnings []string `json:"warnings"`
	Shadow   bool     `json:"shadow"`
	Regions  []Region `json:"regions"` // the node's own first
	Rules    Rules    `json:"rules"`
	Limits   []Limit  `json:"limits"` // of the rules, by name
	// Top is whom the node denied most in the last five to ten minutes, at most TopShown.
	Top    []Denied `json:"top"`
	Memory Memory   `json:"memory"`
	Gossip Gossip   `json:"gossip"`
	Redis  *Redis   `json:"redis"`  // null: the node has none
	Strict []Store  `json:"strict"` // the stores of strict rules
	Bans   int      `json:"bans"`   // in force
	// Event is the ID of the latest event, and Repeats how many were counted in Event.Repeated so far: as long as both
	// stay there are no other events than before.
	Event   uint64 `json:"event"`
	Repeats uint64 `json:"repeats"`
}

// TopShown is how many identities Status.Top has at most.
const TopShown = 8

// Finding is one thing to know, in words.
type Finding struct {
	Level string `json:"level"` // error, warn, or info: what is no reason to be degraded
	Text  string `json:"text"`
	Do    string `json:"do"` // what to do about it
}

// Region is a region as the node sees it.
type Region struct {
	Name      string `json:"name"`
	Own       bool   `json:"own"`
	Reachable bool   `json:"reachable"`      // any of its nodes is; true for the node's own
	Down      bool   `json:"down,omitempty"` // all of its nodes are
	// Since is since when none of its nodes is heard; zero while one is.
	Since time.Time `json:"unreachable_since,omitzero"`
	// Share is about which part of the limits of scope global its nodes admit while each side of a partition keeps its
	// part: by the demand that each node last reported. Null: none was.
	Share   *float64 `json:"limit_share"`
	Members []Member `json:"members"`
}

// Member is a node of the cluster.
type Member struct {
	Node      string `json:"node"`
	Region    string `json:"region"`
	Self      bool   `json:"self,omitempty"` // it is the one that answers
	Addr      string `json:"addr,omitempty"` // of gossip
	Pool      string `json:"pool,omitempty"` // lan or wan; empty: it is not in the membership
	Reachable bool   `json:"reachable"`
	// Down says that it is not reachable because its process has ended: its host refuses connections.
	Down      bool      `json:"down,omitempty"`
	Since     time.Time `json:"unreachable_since,omitzero"`
	Staleness int64     `json:"staleness_ms"` // age of what is known of its counts
	RTT       float64   `json:"rtt_ms"`       // 0: not measured
	Idle      bool      `json:"idle"`         // it has nothing to send to this node: often, no requests come to it
	// ClockAhead is by how much its clock is ahead of the node's that answers; null: not measured.
	ClockAhead *float64 `json:"clock_ahead_ms"`
	// Rules is the fingerprint of its rules; empty: unknown.
	Rules     string `json:"rules,omitempty"`
	SameRules bool   `json:"same_rules"`
	SameKey   bool   `json:"same_identity_key"` // without it, it counts apart
}

// Rules are the rules in force.
type Rules struct {
	Count       int       `json:"count"`
	Fingerprint string    `json:"fingerprint"`
	Since       time.Time `json:"since"`
	Loaded      bool      `json:"loaded"` // false: the last load was refused
}

// Limit is a rule with what it decided. Counts of decisions are those of the node that answers.
type Limit struct {
	Rule      string `json:"rule"` // public name
	Limit     uint64 `json:"limit"`
	Window    int64  `json:"window_ms"`
	Algorithm string `json:"algorithm,omitempty"` // empty: unlimited
	Scope     string `json:"scope"`
	Strict    bool   `json:"strict"`
	Expose    bool   `json:"expose_identity"`
	// Bound is guaranteed: within the last window all nodes together went no further over the limit, as a part of it,
	// on any identity that this node admits or denies, apart from what node/BOUND.md lists.
	Bound float64 `json:"bound_ratio"`
	// Over is an estimate of the same from below, never above Bound: the most by which the counts that have arrived
	// exceeded the limit in that window, as a part of it, on one of the identities that this node denies most. Null: it
	// cannot be known from the counts, as of rules that count what they deny.
	Over    *float64 `json:"over_ratio"`
	Allowed uint64   `json:"allowed"` // since the start
	Denied  uint64   `json:"denied"`
	Recent  *Recent  `json:"recent,omitempty"` // null: there was no decision in that time
}

// Recent are decisions of the last minutes, one number for each step, the oldest first.
type Recent struct {
	Step    int64    `json:"step_ms"`
	Allowed []uint64 `json:"allowed"`
	Denied  []uint64 `json:"denied"`
}

// Memory is that of the counters.
type Memory struct {
	Keys          int    `json:"keys"`
	Bytes         int    `json:"bytes"`
	Budget        int    `json:"budget"`
	Evicted       uint64 `json:"evicted"`        // keys, since the start
	EvictedFull   uint64 `json:"evicted_full"`   // of these, with half of their limit used or more
	EvictedDenied uint64 `json:"evicted_denied"` // of these, whose last request was denied: admitted anew
}

// Gossip is the replication with the peers.
type Gossip struct {
	Interval int64 `json:"interval_ms"`
	// Staleness is the largest of the members'.
	Staleness int64 `json:"staleness_ms"`
	// Complete says that all seeds have answered and all nodes are members: none is missing.
	Complete bool `json:"complete"`
	// Skew is how far the node's clock is ahead of the median of Clocks others.
	Skew   float64 `json:"clock_ahead_ms"`
	Clocks int     `json:"clocks"`
}

// What a node says of a store.
const (
	NoStore  = "none"
	Answers  = "answers"
	NoAnswer = "does not answer" // at the last try
)

// Redis is the store of the node's region.
type Redis struct {
	State   string `json:"state"`   // Answers or NoAnswer
	Pending int    `json:"pending"` // counts that wait to be written
	Failed  uint64 `json:"failed"`  // calls
	Lost    uint64 `json:"lost"`    // times that it was found to have lost data
}

// Store is a store of strict rules.
type Store struct {
	Region    string `json:"home_region"`
	Known     bool   `json:"known"` // the node has its address
	Away      bool   `json:"away"`
	Fallbacks uint64 `json:"fallbacks"` // requests that on_failure decided on
	// Passed is how many of these passed, under rules whose own on_failure is open or local: the limit may be exceeded
	// by as much.
	Passed uint64 `json:"passed"`
}

// Inspection is what every layer knows of one identity.
type Inspection struct {
	Node   string  `json:"node"`
	Allows bool    `json:"allowed"` // whether a request of cost 1 would pass now
	Layers []Layer `json:"layers"`
}

// Layer is an identity under one rule.
type Layer struct {
	Rule       string  `json:"rule"` // public name
	Key        string  `json:"key"`  // keyed hash of the identity
	Limit      uint64  `json:"limit"`
	Used       uint64  `json:"used"` // of the limit, as far as the node knows
	Remaining  uint64  `json:"remaining"`
	Allowed    bool    `json:"allowed"` // the next request
	RetryAfter int64   `json:"retry_after_ms"`
	Banned     bool    `json:"banned"`
	Listed     string  `json:"listed,omitempty"` // allow or deny: on that list of the rule
	Degraded   bool    `json:"degraded"`
	Bound      float64 `json:"bound_ratio"`
	Strict     bool    `json:"strict"` // decided by a store: what nodes count is not what it counts
	Store      string  `json:"store"`  // the Redis that the counts are written to: NoStore, Answers or NoAnswer
	// Counts are what each node has admitted in the sub-windows that still count, the oldest in full: of nodes that
	// are cut off, what had arrived before. By the node's own region and node first. In clusters of more than 16 nodes
	// most of it is in sums.
	Counts   []NodeCount       `json:"counts"`
	ByRegion map[string]uint64 `json:"by_region"`
}

// NodeCount is what one node has admitted, or several of which only the sum is known.
type NodeCount struct {
	Node   string `json:"node"` // empty: it is a sum, or the node is not known any more
	Region string `json:"region"`
	Self   bool   `json:"self,omitempty"`
	Sum    bool   `json:"sum,omitempty"`     // of nodes in any region, as the owners of the key added them up
	CutOff bool   `json:"cut_off,omitempty"` // no counts of it arrive
	Count  uint64 `json:"count"`
}

// Setting is one setting of the effective configuration.
type Setting struct {
	Name  string          `json:"name"`  // as in the configuration file, with dots
	Value json.RawMessage `json:"value"` // secrets are masked
	From  string          `json:"from"`  // default, file, environment, flag or program
}

// KeyHolder says which gossip keys a node has, by the names of their fingerprints.
type KeyHolder struct {
	Node   string `json:"node"`
	Region string `json:"region"`
	State  string `json:"state"` // this node, member, unreachable; or unknown, without a name: there may be others
	// Keys are those that the node accepts: by the first it sends. None: it did not report any.
	Keys []string `json:"keys"`
}
