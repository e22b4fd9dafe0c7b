// Package httpapi is the HTTP door: it translates requests into questions to a [Limiter] and decisions into answers.
// It decides nothing.
//
//	POST /v1/check        one check, by domain and descriptors or by rule and identity    200 either way; ?status=1: 429
//	POST /v1/check/batch  up to 1000 checks, one answer each, in order                    200
//	POST /v1/report       charges a check that was answered, and says what is left       200
//	POST /limiter/check   one check by rule and identity, the short form                  200 or 429
//
// # Invariants
//
//   - A denial is an answer. What is no answer is a problem document (RFC 9457) whose detail says what to do: 400, 404, 405,
//     408, 413, 500 or 503.
//   - A report is charged whatever room there is, up to twice each limit, and never denied: its answer is that of a peek right after.
//   - Nothing is charged before the whole body has been understood.
//   - A body is JSON in UTF-8, whatever its Content-Type says (curl -d calls it a form), with exactly the documented fields, each once and of its type. What a client misspelled is
//     refused rather than ignored: an ignored field would be a limit that silently does not hold.
//   - What a body can make the node allocate is bounded by a small multiple of its own length.
//   - Nothing from a rule's name or a client's request ever splits a header or breaks out of a JSON string.
//   - Waits are rounded up, never down: a client that waits as told is not too early.
package httpapi
