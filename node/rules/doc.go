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
// [Parse] and [Load] accept a file as a whole or not at all. They report everything that is wrong with it at once, as
// [Error] values with file, line, column and reason.
//
// # From a request to rules
//
// Each descriptor of a request is one layer. Its entries are followed down the tree of the domain: at each level the
// descriptor with the entry's key and exactly its value wins over the one with the bare key. There is no way back up, and
// only what the last entry reaches counts, if it has a rate_limit. A layer that meets no rule is allowed. With the file
// above:
//
//	(remote_address, 198.51.100.7)                       edge/remote_address: 100 a minute for 198.51.100.7
//	(remote_address, 192.0.2.1)                          edge/remote_address=192.0.2.1: unlimited, as the exact value wins
//	(path, /login), (remote_address, 198.51.100.7)       edge/path=/login/remote_address: 5 in 10 s for 198.51.100.7
//	(path, /login)                                       nothing: there is no rate_limit half way
//	(path, /), (remote_address, 198.51.100.7)            nothing: no descriptor has this path, nor the bare key
//	(remote_address, 198.51.100.7), (path, /login)       nothing: the order of the entries is that of the tree
//
// A key without a value (or with an empty one) is open: every value that it meets is counted by itself. A request may also
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
