// Package actions turns an HTTP request into what rules are matched against: the entries of descriptors, as the rate limit actions of
// Envoy do. It also finds out who the client is, where a request came through proxies.
//
// A header is whatever its sender wrote. Headers that name the client or the original request are therefore believed only as far as
// proxies wrote them that are configured as trusted ([Proxies]); everything to the left of what they wrote may be made up.
package actions
