// Package respapi serves clients of Redis: it speaks versions 2 and 3 of the Redis protocol, and replaces a Redis with
// the module redis-cell. It translates commands for a [Limiter] and decisions into replies. It decides nothing.
//
//	CL.THROTTLE key max_burst count period [quantity]   five integers, see below
//	PING ECHO HELLO AUTH SELECT CLIENT COMMAND INFO RESET QUIT
//
// CL.THROTTLE charges the key by quantity (1) under a token bucket of max_burst+1 tokens, refilled by count in every
// period seconds. It replies with whether the key is limited (1) or not (0), the bucket's size, what remains, after how
// many seconds the same command passes (-1 if it just did, or never will), and after how many the bucket is full.
// Seconds are rounded up. A quantity of 0 is never limited and charges nothing.
//
// Each max_burst, count and period is a limit of its own ([counters.Limit]) with a meter of its own, which all nodes
// count together as they do those of rules. A key that comes with other numbers than before starts with a full bucket;
// redis-cell would keep its debt.
//
// # Invariants
//
//   - A denial is a reply. Errors are in Redis' own words.
//   - Replies come in the order of the commands. Commands that were read together are answered together.
//   - Whatever a client sends or declares, a connection takes no more memory than a small multiple of what it sent, and
//     no more than some 100 KiB; long commands of all connections take at most 64 MiB together; the time of a command
//     and of a reply is capped. The listener limits connections.
//   - Ad-hoc limits are capped ([MaxLimits]): one source's never evict another's (package limits). A peek keeps none.
//   - No key is logged, kept or sent: a [Limiter] hashes it.
//   - Before authentication, if there is a password, a client can run no other command.
package respapi
