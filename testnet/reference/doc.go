// Package reference holds edgelimit's `compatibility: ratelimit` against the real envoyproxy/ratelimit: both run as
// programs, with the same environment and the same files, and are asked the same.
//
//	programs_test.go    where the two programs come from
//	server_test.go      how they start
//	settings_test.go    the environments that they run in
//	rules.yaml          the rules of all of them (testdata)
//	script_test.go      how exchanges are written
//	vectors*_test.go    the scripted exchanges, which run in each setting
//	random_test.go      sessions of rules and exchanges that a seed makes
//	exchange_test.go    asking both within one second
//	compare_test.go     an answer as fields, and where two answers differ
//	statistics_test.go  the counters that both send by statsd
//	counts_test.go      what the reference counts together, for some of the known differences
//	known_test.go       the differences that are known, each with its reason
//	contrasts_test.go   what edgelimit does otherwise without compatibility
//	page_test.go        the section of node/rlsapi/MIGRATION.md that the run writes
//
// An exchange is one request that first the reference and then edgelimit answer. Their answers are taken apart into
// all fields that they have, over gRPC those of the protobuf message together with the status code and its message, at
// /json those of the document together with the HTTP status. A difference that is not in the list fails the test, and
// so does one of the list that no exchange shows. A decision is a field that lets a request pass or denies it: the
// status, overall_code, and the code of each descriptor.
//
// Both read the machine's clock. An exchange takes place within one second, so that no window ends between the two
// answers; where a second begins in spite of that, the script starts again with two fresh servers.
//
// The reference comes from the Go module proxy. Where it cannot be had, the tests are skipped, except with CI=true.
//
//	go test ./testnet/reference           compares, and holds the page against what it finds
//	go test ./testnet/reference -update   writes the page
package reference
