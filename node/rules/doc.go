// Package rules says what is limited: it reads rule files, and it finds the rule and the key that a request meets.
//
// # From a file to rules
//
// A rule file is envoyproxy/ratelimit's YAML: a domain, and in it a tree of descriptors, each with a key, perhaps a value,
// perhaps a rate_limit, and perhaps descriptors beneath. Beside a unit (second to year) a rate_limit may give any window,
// and any of the algorithms of package counters; a bucket may say by itself what it holds (burst), and how much comes back
// when (refill, in place of unit or window). Several documents in one file (---) are several domains.
//
//	domain: edge
//	descriptors:
//	  - key: path
//	    value: /login
//	    descriptors:
//	      - key: remote_address
//	        rate_limit: {name: login, window: 10s, requests_per_unit: 5}
//	  - key: remote_address
//	    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}
//	  - key: remote_address
//	    value: 192.0.2.1
//	    rate_limit: {unlimited: true}
//
// The flat form is for whoever has no tree: a list of rules, or a rule by itself, in YAML or JSON. A flat rule is met by its name and an
// identity, and stands in no domain.
//
//	[{"rule_id": "login", "limit": 5, "window_seconds": 60}]
//
// [Parse] and [Load] accept a file as a whole or not at all. They report everything that is wrong with it at once, as
// [Error] values with file, line, column and reason. schema.json is for editors. A [Watcher] reads files again when they change.
//
// What else may be said of a rule: a rate_limit, or a flat rule, has
//
//	mode: soft, soft_percent: 10   what is up to 10 % over the limit passes, and is told to be over
//	mode: elastic, parent: other   what is over the limit passes while the rule called other has room, and is told to be over: see below
//	                               (not in the flat form)
//	mode: elastic                  what is over the limit passes while the pressure that is reported to the node is low: at most a
//	                               max_pressure, 0.5 by default
//	cost: 5                        what each unit of a request's cost is charged
//	charge: each                   charged by every request that it admits, also by those that another layer denies
//	scope: region                  global (default): all nodes keep the limit together; region: those of each region do, so that each has
//	                               all of it; node: each node for itself
//	on_partition: local            share (default): each side of a partition has its part of the limit; local: each has all of it
//	max_unsent: 50                 after so many admitted requests a node tells its peers ahead of time
//	ban: 60s                       whom it denies a request it denies everything for so long, on every node
//	count_rejected: true           requests that it denies count as well: who goes on asking stays denied (windows and logs)
//	replaces: [{name: other}]      rules that do not count where a request meets this one as well (not in the flat form)
//
// and beside it a descriptor, or in it a flat rule, has
//
//	shadow_mode: true              it denies nothing, and counts what it would have denied
//	quota_mode: true               it denies only together with all other rules of this mode that the request meets (not in the flat form)
//	share_threshold: true          all values that fit a wildcard share one count (not in the flat form)
//	regions: [eu-west]             it is in force only there, with all that is beneath
//	schedule: [{from: "22:00", to: "06:00", tz: Europe/Paris, requests_per_unit: 20}]
//	                               another number at some times of the day, by the clocks of the zone; the first that holds
//	allow, deny: [10.0.0.0/8]      addresses that are never limited nor counted, or always denied; the longest prefix decides
//	ipv6_prefix: 56                how many bits of an IPv6 address tell one client from another
//	metadata: {...}                anything, for others to read
//
// detailed_metric and value_to_metric are known and have no effect: the reference names metrics after values of requests, and here no
// metric ever is. consistency, on_failure and home_region are known, and refused as far as they are not done yet.
//
// # Elastic rules
//
// An elastic rule promises its own limit, and borrows beyond it what its parent has left: each user of a tenant has 10, and more while the
// tenant as a whole is not at its 1000.
//
//	the rule has   the parent has
//	room           room             the request passes, charged to both
//	room           no room          it passes: what is promised is promised. The parent counts it too, and lends nothing until it has room again
//	no room        room             it passes, charged to the parent, and is told to be over: Waived
//	no room        no room          it is denied
//
// The parent is another rule of the domain that has a limit, and is not elastic itself. A request meets it beside the elastic rule: by a
// descriptor of its own; without one, if it is above the elastic rule in the tree, or has one count for everybody. Where it is none of these,
// or another rule replaces it, there is nothing to borrow. A parent whose limit is 0, or whose deny list names who asks, denies everything. In
// shadow mode an elastic rule borrows nothing, and tells of all that is over its own limit.
//
// # Where files of the reference mean something else
//
// Windows slide unless [Options] say fixed_window, IPv6 addresses are counted by their networks unless ipv6_prefix is 128, and a request is
// charged in all its layers or in none unless its rules say charge: each. Some files are refused: a rate_limit without requests_per_unit
// would block everybody there, an empty rate_limit would limit nobody, a key that is given twice would count once, and a * in a key would be
// a wildcard over keys: here they are mistakes.
//
// # From a request to rules
//
// Each descriptor of a request is one layer. Its entries are followed down the tree of the domain: at each level the
// descriptor with the entry's key and exactly its value wins, then the first in the file whose value has wildcards (*, any number of
// characters) that it fits, then the one with the bare key. There is no way back up, and only what the last entry reaches counts, if it
// has a rate_limit. A layer that meets no rule is allowed, and so is one whose rule is replaced by that of another layer. With the file
// above:
//
//	(remote_address, 198.51.100.7)                       edge/remote_address: 100 a minute for 198.51.100.7
//	(remote_address, 192.0.2.1)                          edge/remote_address=192.0.2.1: unlimited, as the exact value wins
//	(path, /login), (remote_address, 198.51.100.7)       edge/path=/login/remote_address: 5 in 10 s for 198.51.100.7
//	(path, /login)                                       nothing: there is no rate_limit half way
//	(path, /), (remote_address, 198.51.100.7)            nothing: no descriptor has this path, nor the bare key
//	(remote_address, 198.51.100.7), (path, /login)       nothing: the order of the entries is that of the tree
//
// A key without a value (or with an empty one) is open: every value that it meets is counted by itself, and so it is with a wildcard
// unless its values share a threshold. Under keys of addresses (remote_address, client_ip, ip and the like, and identity in the flat form)
// an IPv6 address is counted by its first 64 bits, as a client has the others to itself. A request may also
// name a rule with exactly one open key, and give the identity to put there: {Rule: "login", Identity: "198.51.100.7"} has
// the same [counters.Key] as the third request above, hence the same count.
//
// # Invariants
//
//   - Full names are unique, and depend on nothing but the rule's own place in the tree. They are the meter's rule names,
//     so that editing a limit, or any other rule, keeps the counts.
//   - A [Set] never changes. It is safe for concurrent use, and [Set.Match] allocates nothing.
//   - Identities leave this package only as a keyed hash, which is the same on every node of a cluster.
package rules
