// Package httpapi is the HTTP API: it translates requests for an answer.Limiter and decisions into responses. It
// decides nothing.
//
//	POST /v1/check        one check, by domain and descriptors or rule and identity   200 either way; ?status=1: 429
//	POST /v1/check/batch  up to 1000 checks, one result each, in order                200
//	POST /v1/report       charges the cost of a served request, returns what is left  200
//	POST /limiter/check   one check by rule and identity, the short form              200 or 429
//	POST /json            a request of Envoy's rate limit service, in its JSON        200 or 429
//	ANY  /v1/auth         forward-auth, about the request that a proxy describes      200 or 429
//	ANY  /v1/auth/deny/403, also 401 and 429: the status of denials; /domain/NAME after it, or alone: another domain.
//	     The query is ignored: it may be the client's.
//
// # Invariants
//
//   - A denial is a response. Errors are problem documents (RFC 9457) whose detail says what to do: 400, 404, 405, 408,
//     413, 500 or 503.
//   - A report is charged whatever is left, up to twice each limit, and never denied: its response is that of a peek
//     right after.
//   - Requests that only a web page of another origin can send get 403: a client whose headers say that it is a browser
//     (Origin, Sec-Fetch-Site) has to be of the node's own address, given as an IP address or localhost. /v1/auth is
//     excepted: its headers are those of the original request.
//   - A request with Transfer-Encoding ends its connection: it may have had a Content-Length too (RFC 9112, 6.1).
//   - Nothing is charged before the whole body is decoded.
//   - A body is JSON in UTF-8, whatever its Content-Type says (curl -d calls it a form), with exactly the documented
//     fields, each once and of its type. Misspelled fields are refused: a limit that a client meant would silently not
//     hold.
//   - The memory of a body is bounded by a small multiple of its length.
package httpapi
