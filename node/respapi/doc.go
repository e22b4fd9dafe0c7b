// Package respapi serves clients of Redis: it speaks versions 2 and 3 of the Redis protocol, and replaces a Redis with
// the module redis-cell. It translates commands for a [Limiter] and decisions into replies. It decides nothing.
//
//	CL.THROTTLE key max_burst count period [quantity]   five integers, see below
//	THROTTLE key max_burst count period [quantity]      the same in throttlecrab's order
//	DEL UNLINK EXISTS TTL PTTL TYPE EXPIRE PEXPIRE      of throttled keys
//	MULTI EXEC DISCARD                                  around all of them
//	EVALSHA EVAL SCRIPT                                 of redis_rate's scripts alone, by [Options].RedisRate
//	PING ECHO HELLO AUTH SELECT CLIENT COMMAND INFO RESET QUIT
//
// CL.THROTTLE charges the key by quantity (1) under a token bucket of max_burst+1 tokens, refilled by count in every
// period seconds. It replies with whether the key is limited (1) or not (0), the bucket's size, what remains, after how
// many seconds the same command passes (-1 if it just did, or never will), and after how many the bucket is full.
// Seconds are rounded up. A quantity of 0 charges nothing, a negative one gives back.
//
// A key has one debt, in time, whatever numbers it comes with ([counters.Debts]). It exists as long as it owes
// something. COMPATIBILITY.md lists what differs from redis-cell.
//
// # Invariants
//
//   - A denial is a reply. Errors are in Redis' own words.
//   - Replies come in the order of the commands. Commands that were read together are answered together.
//   - Whatever a client sends or declares, a connection takes no more memory than a small multiple of what it sent, and
//     no more than some 200 KiB; long commands of all connections take at most 64 MiB together; the time of a command
//     and of a reply is capped. The listener limits connections.
//   - Neither new numbers nor new keys evict another key's debt but by the budget of memory. A peek leaves no trace.
//   - The commands of a transaction are capped, and count among the long commands of all connections.
//   - No script runs.
//   - No key is logged, kept or sent: a [Limiter] hashes it.
//   - Before authentication, if there is a password, a client can run no other command.
package respapi
