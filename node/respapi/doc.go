// Package respapi is the door for clients of Redis: it speaks versions 2 and 3 of the Redis protocol, and takes the place of a Redis with
// the module redis-cell. It translates commands into questions to a [Limiter] and decisions into replies. It decides nothing.
//
//	CL.THROTTLE key max_burst count period [quantity]   five integers, see below
//	PING ECHO HELLO AUTH SELECT CLIENT COMMAND INFO RESET QUIT
//
// CL.THROTTLE charges the key by quantity (1) under a token bucket that holds max_burst+1 and gets count back in every period seconds. It
// replies whether the key is limited (1) or not (0), what the bucket holds, what remains, after how many seconds the same command passes
// (-1 if it just did, or never will), and after how many all is back. Seconds are rounded up. A quantity of 0 is never limited and leaves
// no trace.
//
// Each max_burst, count and period is a limit of its own ([counters.Limit]) with a meter of its own, which all nodes count together as they
// do those of rules. A key that comes with other numbers than before begins with a full bucket; redis-cell would go on with what it owed.
//
// # Invariants
//
//   - A denial is a reply. What is no reply is an error in Redis' own words.
//   - Replies come in the order of the commands. What was read together is answered together.
//   - Whatever a client sends or declares, a connection takes no more memory than a small multiple of what it sent, and no more than some
//     100 KiB; long commands of all connections take no more than 64 MiB together; the time that a command and a reply may take is capped. How many connections there may be is for the listener to say.
//   - The limits that clients may make are capped: those in use are never given up for others ([MaxLimits]).
//   - No key is logged, kept or told: a [Limiter] hashes it.
//   - Before a client has said the password, if there is one, it can say nothing else.
package respapi
