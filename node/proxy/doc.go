// Package proxy is a reverse proxy that limits the requests it forwards: the only API of a node that stands in the way
// of requests itself, where the others are asked about them.
//
// # Invariants
//
//   - What is limited is what is forwarded: the request's target goes on byte by byte, and a field that Connection
//     names
//     is gone before the limits look.
//   - What a client may not say about itself (X-Forwarded-For and its like) is replaced, unless the peer is trusted.
//   - No timeout cuts a body, a stream or a WebSocket.
//   - A response never shows more room than there is, neither here nor at the upstream.
package proxy
