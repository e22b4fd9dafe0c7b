// Package actions turns an HTTP request into what rules are matched against: the entries of descriptors, as the rate
// limit actions of Envoy do. It also finds out who the client is, where a request came through proxies.
//
// Any sender can write any header. Headers that name the client or the original request are therefore read only as far
// as trusted proxies (Config.TrustedProxies) wrote them; everything to the left of that may be forged.
//
// Nothing that a client adds to a request removes a layer: a value that servers read differently is counted under each
// reading, and a request with too many values is denied. NORMALIZATION.md lists which forms are the same, and which
// server reads which.
package actions
