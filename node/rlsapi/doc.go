// Package rlsapi is the door of Envoy's rate limit service, version 3, as envoyproxy/ratelimit serves it: ShouldRateLimit over gRPC, and the
// same in JSON for the HTTP door. It translates requests into questions to a [Limiter] and decisions into answers. It decides nothing.
//
//	a descriptor          its status
//	meets no rule         OK
//	is of an unlimited    OK, with a limit_remaining of 2^32 - 1
//	rule
//	is within its limit   OK, with current_limit, limit_remaining, duration_until_reset
//	is over its limit     OVER_LIMIT, with the same
//	is over it, but its   OK: soft and elastic rules, and those in shadow mode
//	mode lets it pass
//	is over a quota       OVER_LIMIT, whether or not another quota lets the request pass
//
// The overall code is OVER_LIMIT if and only if the request is denied: by any rule that is enforced, or by all quotas together. A request that
// waits for its turn in a queue is OK: Envoy cannot hold it back.
//
// # Invariants
//
//   - A denial is an answer. What makes no sense is INVALID_ARGUMENT: no domain, no descriptors, an unknown unit, hits below zero.
//   - There is one status for each descriptor, in order.
//   - A request is charged in all its descriptors or in none, unless its rules say otherwise (charge: each).
//   - Numbers that the protocol has no room for are told as the largest that it has.
//   - What a stranger may hold is bounded: [MaxOverrides] kinds of limits; of a connection 256 requests at a time, messages of 64 KiB and
//     headers of 16 KiB; a request whose client lets it hang is given up after 10 s; answers that are not taken go with their connection,
//     which is closed when it is half an hour old.
//   - Whoever watches the health is told NOT_SERVING before anything is refused.
package rlsapi
