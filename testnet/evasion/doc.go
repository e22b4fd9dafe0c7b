// Package evasion sends one request in hundreds of forms, each of which some common server behind the limiter takes for
// that request, or which contains it beside something else: headers, cookies, parameters and tokens repeated, garbled
// and reordered, and other spellings of the target. No form may meet fewer layers than the plain request, charge one of
// them less, or miss the plain request's own counters. A form that is denied or refused meets all of them.
//
// [Variations], whose forms are in forms.txt, are independent of how they are sent: [Variation.Direct] are the bytes
// that a client sends to a server or proxy, [Variation.Fields] its fields for [HTTP2], [Variation.Asked] those with
// which a trusted proxy asks /v1/auth about it. [Check] holds them against a node with [Rules] and [Requests],
// [CheckBehind] against one behind a proxy, as the tests of testnet/recipes do with nginx, HAProxy and Caddy.
//
// The tests here vary as well what Envoy asks by gRPC and at /json, in particular the values that it copies from
// clients' requests, and CL.THROTTLE of the Redis protocol.
package evasion
