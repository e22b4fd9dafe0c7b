// Package rlsapi serves Envoy's rate limit service, version 3, as envoyproxy/ratelimit does: ShouldRateLimit over gRPC,
// and the same in JSON for the HTTP API. It translates requests for a [Limiter] and decisions into responses. It
// decides nothing.
//
//	a descriptor that         its status
//	matches no rule           OK
//	is of an unlimited rule   OK, with a limit_remaining of 2^32 - 1
//	is within its limit       OK, with current_limit, limit_remaining, duration_until_reset
//	is over its limit         OVER_LIMIT, with the same
//	is over it, but its mode  OK: soft and elastic rules, and those in shadow mode
//	lets it pass
//	is over a quota           OVER_LIMIT, whether or not another quota lets the request pass
//
// The overall code is OVER_LIMIT if and only if the request is denied: by any rule that is enforced, or by all quotas
// together. A request that waits in a queue is OK: Envoy cannot delay it.
//
// # Invariants
//
//   - A denial is a response. INVALID_ARGUMENT is for requests without a domain or descriptors, with an unknown unit or
//     hits below zero.
//   - There is one status for each descriptor, in order.
//   - A request is charged in all its descriptors or in none, unless its rules say otherwise (charge: each). One of
//     several hits reports usage after the fact: it is charged in all of them even if denied, up to twice each limit
//     (overdraw: deny ends that).
//   - Numbers beyond the protocol's range become the largest of it.
//   - Clients are bounded: [MaxOverrides] ad-hoc limits; per connection 256 concurrent requests, messages of 256 KiB
//     and headers of 16 KiB. A request has 2 s from its headers to the end of its message. Over all connections 256
//     requests may be incomplete, of at most 64 MiB; beyond that the oldest is cancelled, so hanging requests keep out
//     neither clients nor health checks. A connection is closed at half an hour, with all responses that the client has
//     not read.
//   - A panic is INTERNAL to its client; other requests go on.
//   - Watches of the health get NOT_SERVING before any request is refused.
package rlsapi
